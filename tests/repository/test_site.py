"""The docs as a site. hack/check builds it strictly; here is what its hook for links out of docs adds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hack.local.build import ROOT
from tests.repository.pages import anchors


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", "hack/site/mkdocs.yml"]
    subprocess.run([*command, "--site-dir", folder], cwd=ROOT, check=True, capture_output=True)
    return folder


def test_a_link_out_of_docs_leads_to_that_page_in_the_site(site: Path) -> None:
    text = (site / "operators/runbooks/index.html").read_text()
    assert 'href="../topology/"' in text
    assert 'href="../../repository/#annotations"' in (site / "users/gangs/index.html").read_text()
    assert 'id="annotations"' in (site / "repository/index.html").read_text()


def test_a_linked_manifest_and_a_picture_come_along(site: Path) -> None:
    example = "repository/manifests/examples/13-claims.yaml"
    assert f'href="../../{example}"' in (site / "users/claims/index.html").read_text()
    assert (site / example).read_bytes() == (ROOT / "manifests/examples/13-claims.yaml").read_bytes()
    assert (site / "repository/webhook/ui/pictures/light.png").exists()


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert 'src="http' not in text, page
        assert 'rel="stylesheet" href="http' not in text, page


def test_an_address_from_before_pages_were_merged_leads_to_the_page_of_now(site: Path) -> None:
    old = (site / "operators/karpenter/index.html").read_text()
    assert 'url=../autoscaler/#karpenter-and-scaling-down"' in old


def test_every_old_address_leads_to_a_heading_that_exists() -> None:
    text = (ROOT / "hack/site/mkdocs.yml").read_text()
    redirects = re.findall(r"^ {8}(\S+\.md): ([^\s#]+)#?(\S*)$", text, re.MULTILINE)
    assert len(redirects) > 50
    assert [
        old
        for old, page, anchor in redirects
        if (anchor and anchor not in anchors(ROOT / "docs" / page)) or not (ROOT / "docs" / page).exists()
    ] == []
