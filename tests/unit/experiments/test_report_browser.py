"""Reports in a real browser: every figure drawn, the slider moves, nothing overlaps, no error, quick with 128 hosts.

`./run test` installs Chromium on Debian, nothing else does (it weighs 400 MB for this test alone); where there is none
the test is skipped and says so.  A copy of the page with one more script looks at itself and writes down what it found.
"""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from experiments import report
from tests.unit.experiments.report_folders import busy_folder
from topologies.registry import parse_topology

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
PROBE = """
<script>
var found = {errors: window.failures, figures: [], overlaps: [], outside: 0};
document.querySelectorAll("svg").forEach(function (svg) {
  var box = svg.getBoundingClientRect(), texts = [], name = svg.querySelector("title").textContent;
  svg.querySelectorAll("text").forEach(function (text) {
    var r = text.getBoundingClientRect();
    texts.push([r.left, r.top, r.right, r.bottom, text.textContent]);
    if (r.left < box.left - 1 || r.right > box.right + 1) found.overlaps.push(name + ": outside: " + text.textContent);
  });
  texts.forEach(function (a, i) { texts.slice(i + 1).forEach(function (b) {
    if (a[0] + 1 < b[2] && b[0] + 1 < a[2] && a[1] + 3 < b[3] && b[1] + 3 < a[3])
      found.overlaps.push(name + ": " + a[4] + " / " + b[4]);
  }); });
  found.figures.push([name, box.width, box.height, svg.querySelectorAll("path,rect").length]);
});
found.wider = document.documentElement.scrollWidth - window.innerWidth;
found.width = window.innerWidth;
var slider = document.getElementById("instant");
function state() {
  return [document.getElementById("shown").textContent].concat(Array.prototype.map.call(
    document.querySelectorAll("#fabric [data-link]"), function (cable) { return cable.getAttribute("stroke"); }));
}
if (slider) {
  found.before = state();
  slider.value = 3;
  slider.dispatchEvent(new Event("input"));
  found.after = state();
}
found.ink = getComputedStyle(document.body).color;
found.loaded_ms = performance.now();
parent.postMessage(JSON.stringify(found), "*");
</script>
"""
FRAME = """<!doctype html><html><head><meta name="color-scheme" content="light dark"></head><body>
<script>addEventListener("message", function (e) { document.body.setAttribute("data-found", e.data); });</script>
<iframe src="probed.html" style="width: WIDTHpx; height: 900px; border: 0"></iframe></body></html>"""
"""A frame has the width that is asked for; windows of a browser have a least width of 500."""
CATCH = "<script>window.failures = []; window.onerror = function (m) { window.failures.push(String(m)); };</script>"
FABRIC = parse_topology("leaf_spine:leaves=2,hosts=4,spines=2")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")


def look(page: Path, tmp_path: Path, *, width: int, dark: bool = False) -> Any:
    """What the probe found in a window of this width."""
    copy = tmp_path / "probed.html"
    text = page.read_text().replace("<head>", f"<head>{CATCH}", 1)
    copy.write_text(text.replace("</body>", f"{PROBE}</body>"))
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)))
    scheme = "0" if dark else "1"
    done = subprocess.run(
        [
            str(CHROMIUM),
            *FLAGS,
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--blink-settings=preferredColorScheme={scheme}",
            "--window-size=1300,900",
            "--dump-dom",
            frame.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found is not None, done.stderr[-2000:]
    return json.loads(unescape(found.group(1)))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = busy_folder(tmp_path_factory.mktemp("run") / "x", FABRIC, samples=120, ranks=8)
    return report.write_page(folder)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_every_figure_is_drawn_without_overlaps_and_the_slider_moves(
    page: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    found = look(page, tmp_path, width=width, dark=dark)
    assert found["errors"] == []
    assert found["width"] == width
    assert len(found["figures"]) == 10
    for name, across, down, drawn in found["figures"]:
        assert across > 250, name
        assert down > 80, name
        assert drawn > 2, name
    assert found["overlaps"] == []
    assert found["wider"] <= 0, "the page itself must not scroll sideways"
    assert found["before"][0] == "whole run"
    assert re.fullmatch(r"[\d.]+ to [\d.]+ ms: .* 50%", found["after"][0])
    assert set(found["before"][1:]) == set(found["after"][1:]) == {"#e69f00"}  # 50-75%, now as over the whole run
    red = int(re.findall(r"\d+", found["ink"])[0])
    assert (red > 128) == dark


def test_the_browser_would_tell_of_words_over_words_and_of_errors(page: Path, tmp_path: Path) -> None:
    spoilt = tmp_path / "spoilt.html"
    words = '<text x="100" y="100">one</text><text x="104" y="101">other</text></svg>'
    spoilt.write_text(
        page.read_text().replace("</svg>", words, 1).replace("<body>", "<body><script>nothing()</script>")
    )
    found = look(spoilt, tmp_path, width=1280)
    assert any(overlap.endswith("one / other") for overlap in found["overlaps"])
    assert ["nothing is not defined" in error for error in found["errors"]] == [True]


def test_a_run_of_128_hosts_opens_within_three_seconds(tmp_path: Path) -> None:
    fabric = parse_topology("leaf_spine:leaves=8,hosts=16,spines=4")
    written = report.write_page(busy_folder(tmp_path / "x", fabric, samples=300, ranks=128))
    found = look(written, tmp_path, width=1280)
    assert found["errors"] == []
    assert found["loaded_ms"] < 3000
