"""CEL selectors over devices: allowed expressions and their results."""

from __future__ import annotations

import pytest

from phalanx.cluster.dra.amounts import nano, written
from phalanx.cluster.dra.errors import SelectorError
from phalanx.cluster.dra.selectors import Selectors
from phalanx.cluster.dra.versions import normalised, parse_version
from phalanx.model.devices.claims import Device, DeviceAttribute, DeviceCapacity
from phalanx.model.text.quantity import QuantityError

DRIVER = "gpu.example.com"
DEVICE = Device(
    "gpu-0",
    attributes=(
        ("model", DeviceAttribute("string", "A100")),
        ("index", DeviceAttribute("int", 5)),
        ("healthy", DeviceAttribute("bool", True)),
        ("modes", DeviceAttribute("strings", ("mig", "mps"))),
        ("other.example.com/version", DeviceAttribute("version", "1.10.0")),
    ),
    capacity=(("memory", DeviceCapacity("40Gi")), ("other.example.com/share", DeviceCapacity("1500m"))),
)
OWN, OTHER = f'device.attributes["{DRIVER}"]', 'device.attributes["other.example.com"]'
MEMORY = f'device.capacity["{DRIVER}"].memory'


def answer(text: str, device: Device = DEVICE) -> bool:
    return Selectors().matches(text, DRIVER, device)


@pytest.mark.parametrize(
    "text",
    [
        f'device.driver == "{DRIVER}"',
        f'{OWN}.model == "A100" && {OWN}.index > 3 && {OWN}.healthy',
        f'{OWN}.model.matches("^A[0-9]+$") && {OWN}.model.lowerAscii() == "a100"',
        f'{OWN}.model in ["A100", "H100"]',
        f'"mig" in {OWN}.modes && {OWN}.modes.includes("mps") && {OWN}.model.includes("A100")',
        f'{MEMORY}.compareTo(quantity("40Gi")) == 0 && {MEMORY} == quantity("40960Mi")',
        f'{MEMORY}.isGreaterThan(quantity("39999Mi")) && {MEMORY}.isLessThan(quantity("1Ti"))',
        f'{MEMORY}.sub(quantity("1Gi")) == quantity("39Gi") && {MEMORY}.add(1).sign() == 1',
        f"{MEMORY}.asInteger() == 42949672960 && {MEMORY}.isInteger()",
        '!device.capacity["other.example.com"].share.isInteger()',
        'isQuantity("1.5Gi") && !isQuantity("lots")',
        f'{OTHER}.version.isGreaterThan(semver("1.9.0")) && {OTHER}.version.minor() == 10',
        'semver("v1.2", true).compareTo(semver("1.2.0")) == 0 && !isSemver("1.2")',
        f"cel.bind(own, {OWN}, own.healthy && own.index == 5)",
        f'{OWN}.?color.orValue("none") == "none"',
        "!device.allowMultipleAllocations",
        "device.attributes[device.driver].index == 5 && device.capacity[device.driver].memory.sign() == 1",
        'device.attributes.exists(domain, domain == "other.example.com") && size(device.capacity) == 2',
    ],
)
def test_selector_matches_device_attributes(text: str) -> None:
    assert answer(text)
    assert not answer(f"!({text})")


def test_absent_domain_is_empty_when_indexed_and_absent_when_tested() -> None:
    absent = 'device.attributes["absent.example.com"]'
    assert not answer(f"has({absent}.model)")
    assert not answer(f'"model" in {absent}')
    assert not answer('"absent.example.com" in device.attributes')
    assert answer('"other.example.com" in device.attributes')
    with pytest.raises(SelectorError, match=r'runtime error: .*"model"'):
        answer(f'{absent}.model == "A100"')


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1 + 1", "must evaluate to bool, not INT"),
        ("device.driver ==", "Syntax error"),
        ("gadget.driver", "undeclared reference to 'gadget.driver'"),
        ('device.driver == "' + "x" * 10_240 + '"', "longer than 10240 bytes"),
    ],
)
def test_illegal_expression_is_refused_when_compiled(text: str, complaint: str) -> None:
    with pytest.raises(SelectorError, match=complaint):
        Selectors().compiled(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f'{OWN}.index > "five"', "No matching overloads"),
        (f"{OWN}.index", "the result is INT, not a bool"),
        (f'{MEMORY}.isLessThan(semver("1.0.0"))', "not a quantity"),
    ],
)
def test_failing_expression_reports_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(SelectorError, match=complaint):
        answer(text)


def test_failure_in_an_irrelevant_operand_does_not_matter() -> None:
    assert answer(f'{OWN}.color == "red" || {OWN}.healthy')


def test_expression_with_too_many_steps_is_stopped() -> None:
    ten = "[" + ",".join("0123456789") + "]"
    text = "true"
    for variable in "abcdef":
        text = f"{ten}.all({variable}, {text})"
    with pytest.raises(SelectorError, match="budget"):
        answer(text)


def test_devices_that_differ_in_unread_attributes_share_an_evaluation() -> None:
    """A serial number causes no further evaluation, unless an expression can look at all names."""
    program = Selectors().compiled(f'{OWN}.model == "A100"')
    other = Device("gpu-1", (*DEVICE.attributes, ("serial", DeviceAttribute("string", "77"))), DEVICE.capacity)
    assert program.sees(DRIVER, DEVICE) == program.sees(DRIVER, other)
    curious = Selectors().compiled(f'{OWN}.exists(name, name == "serial")')
    assert curious.sees(DRIVER, DEVICE) != curious.sees(DRIVER, other)
    assert answer(f'{OWN}.exists(name, name == "serial")', other)
    assert answer(f'"ser" + "ial" in {OWN}', other)


def test_invalid_version_fails_only_its_device() -> None:
    broken = Device("gpu-0", (("version", DeviceAttribute("version", "one")),))
    with pytest.raises(SelectorError, match="attribute version: 'one' is not a semantic version"):
        answer(f'{OWN}.version == semver("1.0.0")', broken)


def test_quantities_in_expressions_are_exact() -> None:
    assert nano("80Gi") == 80 * 2**30 * 10**9
    assert nano("1.5") == 1_500_000_000
    assert nano("1e3") == nano("1k") == 10**12
    assert nano("0.1n") == 1  # rounded away from zero
    assert [written(nano(text)) for text in ("40Gi", "1500m", "3u", "7n")] == ["42949672960", "1500m", "3u", "7n"]
    for text in ("", "1.2.3", "1Xi", "--1"):
        with pytest.raises(QuantityError):
            nano(text)


def test_versions_are_ordered_by_semver() -> None:
    rising = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.0.1",
        "1.10.0",
    ]
    assert sorted(rising, key=parse_version) == rising
    assert parse_version("1.0.0+build.7") == parse_version("1.0.0")
    assert [normalised(text) for text in ("v1.2", "01.02.03", "1", "v1.2.3-rc")] == [
        "1.2.0",
        "1.2.3",
        "1.0.0",
        "1.2.3-rc",
    ]
    for text in ("1.2", "01.2.3", "1.2.3-01", "v1.2.3"):
        with pytest.raises(ValueError, match="not a semantic version"):
            parse_version(text)
