"""Command `phalanx install`: install the objects of the scheduler and its users into a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.connection import connection_options
from phalanx.cli.invocation import Invocation, pass_invocation
from phalanx.cli.services.options import served_names_option
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phalanx.cli.installation.manifests import Manifest
    from phalanx.kube.client import KubeClient

FIELD_MANAGER = "phalanx"
_PAUSE = 0.1  # seconds between requests
_MARK = "app.kubernetes.io/managed-by"
# Annotation with the object that `kubectl apply` applied last.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, kw_only=True)
class InstallArguments:
    """Arguments of `phalanx install`."""

    print_only: bool
    crds_only: bool
    with_policies: bool
    with_hub: bool
    with_multikueue: bool
    with_karmada: bool
    karmada_member: bool
    with_member: bool
    namespace: str
    lease_name: str
    timeout: float
    dashboard_url: str
    dashboard_ca: Path | None
    aggregated_api: bool
    aggregated_address: str

    def address(self) -> list[Manifest]:
        """Return the objects that publish the address of the page's server, for commands of users. Raises
        click.UsageError."""
        from phalanx.cli.installation.dashboard_manifests import address_manifests
        from phalanx.cli.server.address import checked_url

        if not self.dashboard_url:
            if self.dashboard_ca is not None:
                raise click.UsageError("--dashboard-ca requires --dashboard-url URL")
            return []
        authority = self.dashboard_ca.read_text("utf-8") if self.dashboard_ca is not None else ""
        return address_manifests(checked_url(self.dashboard_url, "--dashboard-url"), authority)

    def visibility(self) -> list[Manifest]:
        """Return the objects of the aggregated API, none without it. Raises click.UsageError."""
        from phalanx.cli.installation.visibility_manifests import visibility_access, visibility_service

        address = self.aggregated_address
        if not self.aggregated_api:
            if address:
                raise click.UsageError("--aggregated-address requires --aggregated-api")
            return []
        host, _, port = address.rpartition(":")
        if address and (not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536):
            raise click.UsageError(f"invalid --aggregated-address {quoted(address)}; write HOST:PORT")
        return [*visibility_access(self.namespace), *visibility_service(self.namespace, address)]

    def manifests(self, scheduler_names: tuple[str, ...]) -> tuple[list[Manifest], list[Manifest], list[Manifest]]:
        """Return the CustomResourceDefinitions, access rules and queues to apply."""
        from phalanx.cli.installation import hub_manifests, karmada_manifests, manifests

        namespace = self.namespace
        if self.with_karmada or self.karmada_member:
            # Karmada's API server runs no pods, and its members have their own scheduler.
            rights = karmada_manifests.karmada_access(namespace) if self.with_karmada else []
            rights += karmada_manifests.karmada_member_access(namespace) if self.karmada_member else []
            return [], rights, []
        definitions = manifests.definitions()
        rights = [] if self.crds_only else all_rights(scheduler_names[0], namespace, self.lease_name)
        if self.with_hub:
            definitions += hub_manifests.hub_definitions()
            rights += [] if self.crds_only else hub_manifests.hub_access(namespace)
        if self.with_multikueue and not self.crds_only:
            rights += hub_manifests.multikueue_access(namespace)
        if self.with_member and not self.crds_only:
            rights += hub_manifests.member_access(namespace)
        return definitions, [*rights, *self.address(), *self.visibility()], manifests.volcano_queues()


@click.command()
@connection_options
@click.option("--print", "print_only", is_flag=True, help="Print the manifests to stdout; change no cluster.")
@click.option("--crds-only", is_flag=True, help="Install only custom resource definitions and default queues.")
@click.option(
    "--policies",
    "with_policies",
    is_flag=True,
    help="Also install admission policies for tenant isolation; with --print, print only these.",
)
@click.option(
    "--hub", "with_hub", is_flag=True, help="Also install the objects of `phalanx hub` in the hub's cluster."
)
@click.option(
    "--multikueue", "with_multikueue", is_flag=True, help="Also install the account of the MultiKueue dispatcher."
)
@click.option(
    "--karmada",
    "with_karmada",
    is_flag=True,
    help="Install only the account of the Karmada scheduler, at Karmada's API server.",
)
@click.option(
    "--karmada-member", is_flag=True, help="Install only the read rights of --karmada in a member cluster."
)
@click.option(
    "--member",
    "with_member",
    is_flag=True,
    help="Also install the account with which a hub dispatches gangs to this cluster.",
)
@click.option(
    "--namespace", default="phalanx-system", show_default=True, help="Namespace of the scheduler's service account."
)
@served_names_option(
    "Scheduler name; its service account, roles and lease are called NAME-scheduler. Repeatable: the first name "
    "is used for the objects, and the policies check the pods of all names."
)
@click.option(
    "--lease-name", default="", metavar="NAME", help="Name of the scheduler's lease. Default: NAME-scheduler."
)
@click.option(
    "--dashboard-url",
    default="",
    metavar="URL",
    help="Publish this URL of `phalanx dashboard --login token`, so that users without rights to the whole cluster "
    "can ask why (ConfigMap kube-public/phalanx).",
)
@click.option(
    "--dashboard-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="CA certificates of --dashboard-url (PEM). Default: those of each user's system.",
)
@click.option(
    "--aggregated-api",
    is_flag=True,
    help="Also install the API group visibility.phalanx.dev, by which users with client certificates are answered: "
    "its APIService, Service and rights. Off by default: while its server is down, no namespace can be deleted.",
)
@click.option(
    "--aggregated-address",
    default="",
    metavar="HOST:PORT",
    help="Address of `phalanx dashboard --aggregated-api` outside of the cluster. Default: the pods of the page.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to wait until the API server serves the definitions.",
)
@pass_invocation(InstallArguments)
def install(invocation: Invocation, arguments: InstallArguments) -> None:
    """Install CRDs, RBAC and the default queue into a cluster, and admission policies with --policies.

    The command can be repeated: each object is applied server-side, and one line reports the result. Custom
    resource definitions of another installer are not changed.

    \b
    phalanx install
    phalanx install --context staging --policies
    phalanx install --print | kubectl apply --server-side -f -
    """
    if arguments.with_policies and arguments.crds_only:
        raise click.UsageError("--policies and --crds-only exclude each other: the policies need roles")
    _refuse_bad_names(invocation.scheduler_names, arguments.namespace)
    definitions, rights, queues = arguments.manifests(invocation.scheduler_names)
    if arguments.print_only:
        import yaml

        from phalanx.cli.installation import admission
        from phalanx.kube.own_objects import LABELS

        only = admission.policies(invocation.scheduler_names, LABELS) if arguments.with_policies else []
        documents = only or [*definitions, *rights, *queues]
        click.echo(
            yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True, allow_unicode=True), nl=False
        )
        return

    async def work(client: KubeClient) -> None:
        await install_into(client, definitions, rights, queues, arguments.timeout)
        if arguments.with_policies:
            await install_policies(client, invocation.scheduler_names)

    invocation.run(work)


def _refuse_bad_names(scheduler_names: tuple[str, ...], namespace: str) -> None:
    """Raise click.UsageError for an invalid scheduler name or namespace."""
    from phalanx.admission.names import label_faults, subdomain_faults

    # Check the longest derived name first, so that nothing is applied before a name is rejected.
    for name in scheduler_names:
        if not name or (faults := subdomain_faults(f"{name}-controllers")):
            fault = faults[0] if name else "must not be empty"
            raise click.UsageError(
                f"--scheduler-name {quoted(name)}: invalid as part of account and role names: {fault}"
            )
    if faults := label_faults(namespace):
        raise click.UsageError(f"--namespace {quoted(namespace)}: {faults[0]}")


def all_rights(scheduler_name: str, namespace: str, lease_name: str = "") -> list[Manifest]:
    """Return the service accounts of scheduler, controllers and webhook with their rights and flow schemas.

    `lease_name` is the scheduler's lease ("" for the default).
    """
    from phalanx.cli.installation import manifests
    from phalanx.cli.installation.controller_manifests import controller_access
    from phalanx.cli.installation.people_manifests import people_roles
    from phalanx.cli.installation.webhook_manifests import webhook_access

    scheduler, controllers = f"{scheduler_name}-scheduler", f"{scheduler_name}-controllers"
    own = manifests.access(scheduler, namespace, scheduler_name, lease_name)
    (rules,) = (
        manifest["rules"]
        for manifest in own
        if (manifest["kind"], manifest["metadata"]["name"]) == ("ClusterRole", scheduler)
    )
    return [
        *own,
        *people_roles(rules),
        *controller_access(controllers, namespace),
        *webhook_access(namespace),
        *manifests.flow_schemas(scheduler, namespace),
        *manifests.flow_schemas(controllers, namespace),
    ]


async def install_into(
    client: KubeClient,
    definitions: list[Manifest],
    rights: list[Manifest],
    queues: list[Manifest],
    timeout: float,  # noqa: ASYNC109 - seconds, checked against the clock between requests
) -> None:
    """Apply all objects, wait `timeout` seconds for the definitions, then create the default queues.

    Raises ApiError, ConnectionLost, and ClickException if a definition is rejected.
    """
    from phalanx.cli.installation.manifests import QUEUES_DEFINITION

    ours = [entry for entry in definitions if await _apply(client, entry, respect_others=True)]
    for manifest in rights:
        await _apply(client, manifest)
    deadline = time.monotonic() + timeout
    await _wait_until_served(client, ours, deadline)
    if any(entry["metadata"]["name"] == QUEUES_DEFINITION for entry in ours):
        for manifest in queues:
            await _create(client, manifest, deadline)


async def install_policies(client: KubeClient, scheduler_names: Sequence[str]) -> None:
    """Apply the admission policies after the rights that they check, so that no request is rejected in between.

    Policies that already guard pods of other schedulers keep guarding them: schedulers are installed one after the
    other. An API server without admission policies (before Kubernetes 1.30) gets none.
    """
    from phalanx.cli.installation.admission import GROUP_VERSION, guarded_schedulers, policies
    from phalanx.cli.installation.manifests import object_path
    from phalanx.kube.own_objects import LABELS

    served = await _read(client, f"/apis/{GROUP_VERSION}") or {}
    if not any(entry["name"] == "validatingadmissionpolicies" for entry in served.get("resources", ())):
        click.echo(
            f"Admission policies are not installed: the API server has no validatingadmissionpolicies "
            f"({GROUP_VERSION}); only RBAC isolates tenants."
        )
        return
    guarded = {
        name: None
        for manifest in policies(scheduler_names, LABELS)
        for name in guarded_schedulers(await _read(client, object_path(manifest)) or {})
    }
    earlier = [name for name in guarded if name not in scheduler_names]
    for manifest in policies([*scheduler_names, *earlier], LABELS):
        await _apply(client, manifest)
    if earlier:
        click.echo(
            f"The admission policies still check the pods of {' and '.join(earlier)}, from an earlier "
            "installation. To stop that, apply the output of --policies --print."
        )


async def _apply(client: KubeClient, manifest: Manifest, *, respect_others: bool = False) -> bool:
    """Apply one object and print the result. Return False if the object belongs to another installer."""
    from phalanx.cli.installation.manifests import object_path
    from phalanx.kube.client import PatchType

    path = object_path(manifest)
    before = await _read(client, path)
    if respect_others and before is not None and not _is_ours(before):
        _print_result(manifest, "unchanged (not installed by Phalanx)")
        return False
    after = await client.patch(path, manifest, PatchType.APPLY, field_manager=FIELD_MANAGER, force=True)
    if before is None:
        _print_result(manifest, "created")
    else:
        same = before["metadata"].get("resourceVersion") == after["metadata"].get("resourceVersion")
        _print_result(manifest, "unchanged" if same else "configured")
    return True


async def _create(client: KubeClient, manifest: Manifest, deadline: float) -> None:
    """Create an object unless it exists; later its users own it."""
    from phalanx.cli.installation.manifests import object_path
    from phalanx.kube.errors import ApiError

    path = object_path(manifest)
    while True:
        if await _read(client, path) is not None:
            _print_result(manifest, "unchanged")
            return
        try:
            await client.create(path.rpartition("/")[0], manifest)
        except ApiError as error:
            # The definition is not yet known to every replica of the API server, or another installer was faster.
            if error.status not in (404, 409) or time.monotonic() >= deadline:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            _print_result(manifest, "created")
            return


async def _wait_until_served(client: KubeClient, definitions: list[Manifest], deadline: float) -> None:
    from phalanx.cli.installation.manifests import object_path

    for manifest in definitions:
        name = manifest["metadata"]["name"]
        while True:
            definition = await _read(client, object_path(manifest)) or {}
            conditions = definition.get("status", {}).get("conditions") or []
            if any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions):
                break
            rejections = [
                entry for entry in conditions if entry["type"] == "NamesAccepted" and entry["status"] == "False"
            ]
            if rejections:
                raise click.ClickException(
                    f"definition {name} is rejected: {rejections[0].get('message', 'its names are already in use')}"
                )
            if time.monotonic() >= deadline:
                raise click.ClickException(f"timeout: definition {name} is not served yet; see its conditions")
            await asyncio.sleep(_PAUSE)


async def _read(client: KubeClient, path: str) -> dict[str, Any] | None:
    from phalanx.kube.errors import ApiError

    try:
        document: dict[str, Any] = await client.get(path)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    return document


def _is_ours(existing: dict[str, Any]) -> bool:
    """Return whether Phalanx installed an existing object and no other installer applied it since."""
    from phalanx.dialects.field_owners import field_owners

    metadata = existing["metadata"]
    if not _has_our_label(metadata):
        return False
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        applied = json.loads((metadata.get("annotations") or {}).get(_LAST_APPLIED) or "null")
        if applied is not None and not _has_our_label(applied.get("metadata") or {}):
            return False
    return not any(
        owner.manager != FIELD_MANAGER
        and owner.operation == "Apply"
        and owner.owns("f:spec")
        and not owner.owns("f:metadata", "f:labels", f"f:{_MARK}")
        for owner in field_owners(metadata)
    )


def _has_our_label(metadata: dict[str, Any]) -> bool:
    return bool((metadata.get("labels") or {}).get(_MARK) == "phalanx")


def _print_result(manifest: Manifest, outcome: str) -> None:
    """Print the result for an installed object like kubectl: `role.rbac.authorization.k8s.io/phalanx-scheduler
    created`."""
    group = manifest["apiVersion"].rpartition("/")[0]
    kind = manifest["kind"].lower()
    click.echo(f"{f'{kind}.{group}' if group else kind}/{manifest['metadata']['name']} {outcome}")
