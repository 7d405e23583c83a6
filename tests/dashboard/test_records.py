"""Records of the scheduler, read by the account that the chart creates for the page."""

from __future__ import annotations

import json

import pytest

from phalanx.daemon.controllers import policy_record, usage_record
from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.reports.read_promises import read_promises
from phalanx.views import promise_record
from tests.dashboard.cluster import Site

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.e2e]

POLICY = "actions: allocate\n"


async def test_the_page_reads_promises_usage_and_the_policy(site: Site) -> None:
    texts = {
        policy_record.NAME: {"phalanx": json.dumps({"schedulerNames": ["phalanx"], "policy": POLICY})},
        f"phalanx-{promise_record.NAME}": {promise_record.DATA_KEY: '{"version": 1, "reservations": []}'},
        f"phalanx-{usage_record.NAME}-0": {usage_record.DATA_KEY: '{"version": 1}'},
    }
    for name, data in texts.items():
        named = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        await site.client.create(CONFIG_MAPS.path("kube-system"), named)
    try:
        async with KubeClient(load_config(str(site.directory / "dashboard.kubeconfig"))) as account:
            for name, data in texts.items():
                assert (await account.get(CONFIG_MAPS.path("kube-system", name)))["data"] == data
            assert (await read_promises(account, "kube-system")).warning == ""
        async with site.dashboard("token", rehearsed=False) as page:
            assert [str(each) for each in page.served.watch.policy.actions] == ["allocate"]
    finally:
        for name in texts:
            await site.client.delete(CONFIG_MAPS.path("kube-system", name))
