"""One stable name a product: from the table, the driver, udev's database; and how the table is made."""

from pathlib import Path

import pytest

from hack import gpus
from labeler.contract.legal_values import is_legal_value, readable_value
from labeler.models import AMD, INTEL, NVIDIA, former_name, is_discrete, model_name


def rows() -> list[list[str]]:
    """The lines of the table."""
    return [line.split("\t") for line in gpus.TABLE.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("vendor", "device", "name"),
    [
        (NVIDIA, "0x2330", "H100 SXM5 80GB"),
        (NVIDIA, "0x2335", "H200 SXM 141GB"),
        (NVIDIA, "0x2901", "B200"),
        (NVIDIA, "0x2941", "GB200"),
        (NVIDIA, "0x3182", "B300 SXM6 AC"),
        (NVIDIA, "0x31c2", "GB300"),
        (NVIDIA, "0x26b9", "L40S"),
        (NVIDIA, "0x2204", "GeForce RTX 3090"),
        (NVIDIA, "0x2684", "GeForce RTX 4090"),
        (NVIDIA, "0x2b85", "GeForce RTX 5090"),
        (NVIDIA, "0x2bb5", "RTX PRO 6000 Blackwell Server Edition"),
        (AMD, "0x74a0", "Instinct MI300A"),
        (AMD, "0x74a1", "Instinct MI300X"),
        (AMD, "0x74a5", "Instinct MI325X"),
        (AMD, "0x75a3", "Instinct MI355X"),
        (INTEL, "0x0bd5", "Data Center GPU Max 1550"),
        (INTEL, "0xe20b", "Arc B580"),
    ],
)
def test_what_data_centres_run_has_a_name_without_udevs_database(vendor: str, device: str, name: str) -> None:
    assert model_name(vendor, device, "", None) == name


@pytest.mark.promise("O304")
@pytest.mark.parametrize(
    ("device", "driver", "database", "name"),
    [
        ("0x2330", "NVIDIA H100 80GB HBM3", "GH100 [H100 of another list]", "H100 SXM5 80GB"),
        ("0xfff0", "NVIDIA H900", "GH900 [H900 SXM9]", "H900"),
        ("0xfff0", "", "GH900 [H900 SXM9]", "H900 SXM9"),
        ("0xfff0", "", "GH900", "GH900"),
        ("0xfff0", "Unknown", None, "nvidia-fff0"),
        ("0xfff0", "", None, "nvidia-fff0"),
        ("0x25b6", "NVIDIA A16", "GA107GL [A2 / A16]", "A16"),
        ("0x25b6", "", "GA107GL [A2 / A16]", "A2 / A16"),
        ("0x20b5", "NVIDIA A100-40C", None, "A100-40C"),
        ("0x20f1", "NVIDIA A100-1-5CME", None, "A100-1-5CME"),
        ("0x2330", "NVIDIA H100XM-1-10CGFX", None, "H100XM-1-10CGFX"),
        ("0xfff0", "", "GA106 [GeForce RTX 3060 Lite Hash Rate]", "GeForce RTX 3060"),
        ("0xfff0", "", "TU102 [GeForce RTX 2080 Ti Rev. A]", "GeForce RTX 2080 Ti"),
        ("0x2504", "", "GA106 [GeForce RTX 3060 Lite Hash Rate]", "GeForce RTX 3060"),
        ("0x2503", "", "GA106 [GeForce RTX 3060]", "GeForce RTX 3060"),
    ],
    ids=[
        "the table first", "then the driver", "then the database", "a chip", "a driver that lost it",
        "nobody", "an id of two products by the driver", "an id of two products by the table",
        "a share", "a share on MIG", "a share on MIG for graphics",
        "a variant", "a revision", "a variant in the table", "the product",
    ],
)  # fmt: skip
def test_a_product_has_one_name_whatever_its_source(
    device: str, driver: str, database: str | None, name: str
) -> None:
    assert model_name(NVIDIA, device, driver, database) == name


@pytest.mark.parametrize(
    ("vendor", "device", "database", "name"),
    [
        (NVIDIA, "0x2504", "GA106 [GeForce RTX 3060 Lite Hash Rate]", "GeForce RTX 3060 Lite Hash Rate"),
        (NVIDIA, "0x2335", "GH100", "GH100"),
        (NVIDIA, "0x2335", None, "nvidia-2335"),
        (NVIDIA, "0x2330", None, "H100 SXM5 80GB"),
        (INTEL, "0x46a6", None, "intel-46a6"),
    ],
)
def test_the_name_of_the_release_before_is_known(
    vendor: str, device: str, database: str | None, name: str
) -> None:
    assert former_name(vendor, device, database) == name


def test_every_name_of_the_table_makes_a_label_and_every_device_stands_once() -> None:
    assert len({(vendor, device) for vendor, device, _ in rows()}) == len(rows())
    assert all(is_legal_value(readable_value(name)) for _, _, name in rows())


@pytest.mark.parametrize(
    ("vendor", "device"), [(AMD, "0x164e"), (AMD, "0x1586"), (INTEL, "0x7d55"), (INTEL, "0x46a6")]
)
def test_no_gpu_of_a_processor_is_in_the_table(vendor: str, device: str) -> None:
    assert not is_discrete(vendor, device)


LIST = """\
#\tVersion: 2031.01.02
1002  Advanced Micro Devices, Inc. [AMD/ATI]
\t15bf  Phoenix1
\t164e  Raphael
\t74a1  Aqua Vanjaram [Instinct MI300X]
\t\t1002 74a1  Instinct MI300X OAM
\tab28  Navi 21/23 HDMI/DP Audio Controller [Radeon]
10de  NVIDIA Corporation
\t0391  G70 [GeForce 7600 GT]
\t2330  GH100 [H100 SXM5 80GB]
\t2504  GA106 [GeForce RTX 3060 Lite Hash Rate]
\t2520  GA106M [GeForce RTX 3060 Mobile / Max-Q]
\t2941  GB100 [HGX GB200]
\t20fe  GA100 [INT SKU]
8086  Intel Corporation
\t7d55  Meteor Lake-P [Intel Arc Graphics]
\te20b  Battlemage G21 [Arc B580]
C 03  Display controller
"""


def test_the_table_is_made_of_the_discrete_products_of_the_list() -> None:
    assert list(gpus.products(LIST.splitlines())) == [
        ("1002", "74a1", "Instinct MI300X"),
        ("10de", "2330", "H100 SXM5 80GB"),
        ("10de", "2504", "GeForce RTX 3060"),
        ("10de", "2941", "GB200"),
        ("8086", "e20b", "Arc B580"),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [(None, "cannot be read"), ("rubbish", "is no PCI ID list")],
    ids=["absent", "rubbish"],
)
def test_what_is_no_list_makes_no_table(
    text: str | None, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = gpus.TABLE.read_bytes()
    path = tmp_path / "pci.ids"
    if text is not None:
        path.write_text(text)
    assert gpus.main([str(path)]) == 2
    assert sentence in capsys.readouterr().err
    assert gpus.TABLE.read_bytes() == before
