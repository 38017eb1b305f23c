"""The report as it is read: in a real browser, by light and by dark, on a phone, by keyboard."""

import pytest
from playwright.sync_api import expect

from tests.support.browser import DESKTOP, PHONE, Reader, chromium


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser):
    """Open a page; its context is closed at the end."""
    readers = []

    def open_page(path, **reader):
        readers.append(Reader(browser, path, **reader))
        return readers[-1]

    yield open_page
    for reader in readers:
        reader.page.context.close()


def choose(page, **by_name):
    for name, label in by_name.items():
        page.locator(f"select[name={name}]").select_option(label=label)


def check(reader):
    for width, height in (DESKTOP, PHONE):
        reader.page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            reader.page.emulate_media(color_scheme=scheme)
            reader.check()


@pytest.mark.parametrize("name", ["index.html", "explorer.html"])
@pytest.mark.parametrize("report", ["small", "seeded"])
def test_pages_are_whole_and_readable(opened, request, report, name):
    reader = opened(request.getfixturevalue(report) / name)
    check(reader)
    if name == "explorer.html" and report == "small":
        choose(reader.page, other="base: no latent")
        check(reader)


def test_a_table_sorts_up_down_and_back_and_rows_below_an_arm_stay_there(opened, small):
    """What an arm has not stands last, and the paper's row belongs to the arm with its κ."""
    page = opened(small / "index.html").page
    bounds, samples = (
        page.locator("table", has=page.get_by_role("button", name=name))
        for name in ("gap to exact", "groups × size")
    )

    def names(table):
        return table.locator("tbody th").all_inner_texts()

    def head(table, text):
        return table.locator("thead th", has_text=text)

    arms = names(bounds)
    assert arms == ["base", "free_k1_8", "free_wide"]
    cell = head(bounds, "filtering bound")
    cell.get_by_role("button").click()
    assert cell.get_attribute("aria-sort") == "ascending"
    assert names(bounds) == ["free_wide", "free_k1_8", "base"]
    cell.get_by_role("button").click()
    assert cell.get_attribute("aria-sort") == "descending"
    assert names(bounds) == ["free_k1_8", "free_wide", "base"]
    head(bounds, "arm").get_by_role("button").click()
    assert cell.get_attribute("aria-sort") is None
    assert names(bounds) == arms
    before = names(samples)
    assert before == ["base", "free_k1_8", "↳ the paper", "free_wide"]
    head(samples, "κ").get_by_role("button").focus()  # its values are fractions
    page.keyboard.press("Enter")
    assert names(samples) == ["free_k1_8", "↳ the paper", "free_wide", "base"]
    page.keyboard.press("Space")
    assert names(samples) == ["free_wide", "free_k1_8", "↳ the paper", "base"]
    page.keyboard.press("Enter")
    assert names(samples) == before
    # where the paper has the smallest
    head(samples, "spread, pinned z").get_by_role("button").click()
    assert names(samples) == ["free_k1_8", "↳ the paper", "free_wide", "base"]
    said = ["1/64", "3/10", "1,002,003", "−0.5 ± 0.1", "+44.44 %"]
    assert page.evaluate("said => said.map(number)", said) == [1 / 64, 0.3, 1002003, -0.5, 44.44]


def test_what_scrolls_is_reached_by_the_keyboard_and_has_a_name(opened, small):
    page = opened(small / "index.html", screen=PHONE).page
    table = page.get_by_role("region", name="target: bits per token, scrolls sideways")
    assert table.get_attribute("tabindex") == "0"  # other browsers than this one need it
    table.focus()
    # Not wait_for_function: it evaluates a string again and again, which the page's CSP forbids.
    scrolled = table.evaluate_handle(
        "e => ({it: new Promise(done => { e.onscroll = done; setTimeout(done, 10000); })})"
    )
    page.keyboard.press("ArrowRight")
    scrolled.evaluate("scrolled => scrolled.it.then(() => true)")
    assert table.evaluate("table => table.scrollLeft") > 0
    page.set_viewport_size({"width": 3000, "height": 900})
    expect(page.get_by_role("region")).to_have_count(0)


def test_what_one_looks_at_is_chosen_by_keyboard_and_a_baseline_has_no_z(opened, small):
    page = opened(small / "explorer.html").page
    titles = [f"{name} bit per token" for name in ("free_k1_8: κ = 1/8", "free_wide: κ = 3/10")]

    def pinned():
        """Prompts and last characters, which are the number of z."""
        lines = page.locator("pre.pinned").inner_text().split()
        return [(line[:2], line[-1]) for line in lines]

    assert page.locator("h2").all_inner_texts() == titles[:1]
    assert page.locator("pre.fresh i.target").first.inner_text() == "A" * 8
    assert pinned() == [("A>", "0")] * 2
    page.get_by_label("1", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert pinned() == [("A>", "1")] * 2
    page.get_by_label("Prompt").focus()
    page.keyboard.press("ArrowDown")
    assert pinned() == [("B>", "1")] * 2
    page.get_by_label("Arm").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("h2").all_inner_texts() == titles[1:]
    choose(page, other="base: no latent")
    assert page.locator("h2").all_inner_texts() == [*titles[1:], "base: no latent"]
    baseline = page.locator("section").last
    assert "nothing to pin" in baseline.inner_text()
    assert (baseline.locator("pre.fresh").count(), baseline.locator("pre.pinned").count()) == (1, 0)


def test_a_figure_is_enlarged_by_a_click_and_by_the_keyboard(opened, small):
    reader = opened(small / "index.html")
    page, dialog = reader.page, reader.page.locator("dialog img")
    page.locator(".first img").click()
    assert dialog.evaluate("e => e.width == e.naturalWidth && e.width") > 1000
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Enlarge").first.press("Enter")
    expect(dialog).to_have_count(1)
    dialog.click()
    expect(dialog).to_have_count(0)
    assert reader.trouble == []


def test_what_a_model_writes_is_shown_as_text_alone(opened, small):
    reader = opened(small / "explorer.html")
    choose(reader.page, data="text")
    assert reader.page.locator("pre.fresh").all_inner_texts() == [
        f"\n\ufffd end ``` of</script><img src=x onerror=alert(1)>{i}" for i in "ab"
    ]
    assert reader.page.locator("pre.prompt").inner_text() == "if a <b> &"
    reader.check()
