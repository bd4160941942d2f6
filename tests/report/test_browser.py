"""The page in a real headless Chromium (Debian: chromium, chromium-driver)."""
from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from tests.report.test_picture import chain, named
from transpiler.report.html import page

MOST_BYTES = 1_500_000  # of the page, script and all


@pytest.fixture(scope='module')
def browser():
    options = Options()
    options.binary_location = shutil.which('chromium') or shutil.which('google-chrome') or ''
    for switch in ('headless=new', 'no-sandbox', 'disable-dev-shm-usage', 'disable-gpu',
                   'window-size=1400,1600'):
        options.add_argument(f'--{switch}')
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
    driver = shutil.which('chromedriver')
    with webdriver.Chrome(options=options,
                          service=Service(driver) if driver else Service()) as chromium:
        chromium.set_network_conditions(offline=True, latency=0, throughput=1)
        yield chromium


def opened(browser, folder: Path, report, title: str = 'a program'):
    path = folder / 'memory.html'
    path.write_text(page(report, title))
    browser.get(path.as_uri())
    return browser


@pytest.fixture(scope='module')
def small():
    return chain(40)


def test_it_opens_without_a_message_on_the_console(browser, small, tmp_path):
    assert opened(browser, tmp_path, small).get_log('browser') == []


def test_the_peaks_are_those_of_the_report(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    peaks = [
        int(browser.find_element(By.ID, key).get_attribute('data-peak'))
        for key in ('before', 'after')
    ]
    assert peaks == [small.peak_bytes_before, small.peak_bytes_after]
    drawn = [
        browser.execute_script(f'return Math.max(...memory.sides.{key}.bytes)')
        for key in ('before', 'after')
    ]
    assert drawn == peaks


def test_before_and_after_have_one_scale_whichever_is_shown(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    scales = []
    for which, keys in (('both', ('before', 'after')), ('before', ('before',)), ('after',
                                                                                 ('after',))):
        browser.find_element(By.CSS_SELECTOR, f'[data-side={which}]').click()
        shown = [k for k in ('before', 'after') if browser.find_element(By.ID, k).is_displayed()]
        assert shown == list(keys)
        scales += [browser.execute_script(f'return memory.area("{k}").plotted.scale') for k in keys]
    assert len(set(scales)) == 1 and scales[0] > small.peak_bytes_before


def test_on_a_wide_screen_both_stand_side_by_side_part_by_part(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    places = browser.execute_script(
        'return ["before", "after"].map(key => ["area", "largest", "lanes"].map(part => {'
        'const box = document.getElementById(key + "-" + part).getBoundingClientRect();'
        'return [box.left, box.top]; }));')
    for before, after in zip(*places):
        assert before[0] < after[0] and before[1] == after[1]
    browser.find_element(By.CSS_SELECTOR, '[data-side=before]').click()
    widths = browser.execute_script(
        'return [document.getElementById("before-area").clientWidth, document.body.clientWidth];')
    assert widths[0] > 0.95 * widths[1]  # one alone has the whole of it


def test_storages_of_one_size_stand_in_the_order_of_their_steps(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    rows = browser.execute_script('return memory.lanes("before").rows.map(row => {'
                                  'const side = memory.sides.before;'
                                  'const bars = memory.lanes("before").bars.get(row);'
                                  'return [-Math.max(...bars.map(b => side.sizes[b])),'
                                  'Math.min(...bars.map(b => side.first[b]))]; });')
    assert rows == sorted(rows) and len({size for size, _ in rows}) < len(rows)


def test_the_legend_names_what_is_drawn_and_nothing_else(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    named = browser.execute_script(
        'return [...document.querySelectorAll(".legend i")].map(i => i.dataset.group);')
    drawn = {bar.group for p in (small.picture_before, small.picture_after) for bar in p.bars}
    assert sorted(named) == sorted([*drawn, 'resting']) and 'kept' not in named


def test_every_tensor_is_drawn(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    for key, picture in (('before', small.picture_before), ('after', small.picture_after)):
        drawn, bars = browser.execute_script(
            f'return [memory.area("{key}").plotted.bars, memory.sides.{key}.count]')
        assert drawn == bars == len(picture.bars) > 30


def test_the_stack_at_each_step_has_the_bytes_of_the_report(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    tops = browser.execute_script(
        'const side = memory.sides.before;'
        'return side.bytes.map((_, i) => { const s = side.stack(i); return s[s.length - 1].high; });'
    )
    assert tops == small.picture_before.bytes


def test_something_is_painted_in_the_colour_of_its_group(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    painted = browser.execute_script(
        'const c = document.getElementById("before-area");'
        'const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;'
        'let n = 0; for (let i = 0; i < d.length; i += 4) if (d[i+3] > 250 && d[i] === 0x4c && d[i+1] === 0x78) n++;'
        'return n;')
    assert painted > 1000


def hovered(browser, key: str, step: int, share: float = 0.5) -> str:
    """The text at a step, at a share of the height that is used there."""
    x, y = browser.execute_script(
        'const a = memory.area(arguments[0]), s = a.side.bytes[arguments[1]];'
        'return [a.x(arguments[1] + 0.5), a.y(s * arguments[2])];', key, step, share)
    canvas = browser.find_element(By.ID, f'{key}-area')
    browser.execute_script('arguments[0].scrollIntoView({block: "center"})', canvas)
    size = canvas.size
    ActionChains(browser).move_to_element_with_offset(canvas, int(x - size['width'] / 2),
                                                      int(y - size['height'] / 2)).perform()
    return browser.find_element(By.ID, 'tip').text


def test_hovering_shows_the_size_the_operator_and_the_source_line(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    text = hovered(browser, 'before', 20)
    assert 'KiB' in text and 'made by relu' in text and 'model.py:' in text
    assert 'step 20' in text


def test_a_click_says_what_begins_and_what_ends_there(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    hovered(browser, 'after', 20)
    ActionChains(browser).click().perform()
    text = browser.find_element(By.ID, 'after-detail').text
    assert 'begins here: v20' in text and 'ends here:' in text and 'File "model.py", line' in text


def test_layers_are_bands_that_say_what_they_are(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    runs = browser.execute_script(
        'return memory.sides.before.levels.map(l => l.map(r => [r.name, r.first, r.last]))')
    assert runs == [[['net', 0, 39]], [[f'layer_{i}', 10 * i, 10 * i + 9] for i in range(4)]]
    told = browser.execute_script(
        'const a = memory.area("before"); return a.tell(a.x(25), a.inner[3] + 1.5 * a.strip / 2);')
    assert told.startswith('net/layer_2\nsteps 20 to 29, at most ') and told.endswith('KiB alive')
    assert browser.execute_script(
        'const a = memory.area("before"); return a.tell(a.x(25), a.inner[3] + 3 * a.strip);') == ''


def test_a_click_shows_the_call_that_made_it_with_the_users_frame_first(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    assert 'of net/layer_2' in hovered(
        browser, 'after', 20) and 'model.py:19' in browser.find_element(By.ID, 'tip').text
    ActionChains(browser).click().perform()
    calls = browser.find_element(By.CSS_SELECTOR, '#after-detail details')
    calls.find_element(By.TAG_NAME, 'summary').click()
    assert calls.find_element(By.TAG_NAME, 'pre').text.splitlines() == [
        'File "model.py", line 19', 'File "train.py", line 7'
    ]


def test_zooming_in_shows_fewer_steps_and_a_double_click_all_again(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    canvas = browser.find_element(By.ID, 'before-area')
    view = 'const [a, b] = memory.sides.before.view; return b - a'
    assert browser.execute_script(view) == 40
    browser.execute_script(
        'arguments[0].dispatchEvent(new WheelEvent("wheel", {deltaY: -400, clientX: 500, cancelable: true}))',
        canvas)
    assert browser.execute_script(view) < 30
    ActionChains(browser).double_click(canvas).perform()
    assert browser.execute_script(view) == 40


def test_a_search_lists_the_variable_and_a_click_reveals_it(browser, tmp_path):
    opened(browser, tmp_path, chain(2000))
    browser.find_element(By.ID, 'search').send_keys('V1717')
    assert browser.find_element(By.ID, 'found').text == '2 found'
    rows = browser.find_elements(By.CSS_SELECTOR, '#hits tr')
    assert len(rows) == 2 and all(
        'v1717' in row.text and 'model.py:1717' in row.text for row in rows)
    rows[1].click()
    low, high = browser.execute_script('return memory.sides.after.view')
    assert low <= 1717 < high and high - low < 100
    assert 'v1717' in browser.find_element(By.ID, 'after-detail').text


def test_of_many_that_are_found_the_largest_of_both_sides_are_listed(browser, tmp_path):
    opened(browser, tmp_path, named([f'a_{i}' for i in range(30)]))
    browser.find_element(By.ID, 'search').send_keys('a_')
    assert browser.find_element(By.ID, 'found').text == '60 found, the largest are listed'
    assert _texts(browser, '#hits td:first-child') == ['before'] * 10 + ['after'] * 10


def test_a_name_without_room_keeps_both_its_ends(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    fitted = browser.execute_script(
        'const pen = document.createElement("canvas").getContext("2d");'
        'return [1000, 100, 40].map(room => {'
        'const text = memory.fitting(pen, "lstm_cell_2.w_0@GRAD@RENAME@block0@12", room);'
        'return [text, pen.measureText(text).width <= room]; });')
    assert fitted[0] == ['lstm_cell_2.w_0@GRAD@RENAME@block0@12', True]
    for text, fits in fitted[1:]:
        start, end = text.split('…')
        assert fits and start and end
        assert 'lstm_cell_2'.startswith(start[:11]) and 'RENAME@block0@12'.endswith(end[-16:])


@pytest.fixture(params=[390, 1400])
def width(browser, request):
    browser.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', {
        'width': request.param,
        'height': 800,
        'deviceScaleFactor': 1,
        'mobile': request.param < 500
    })
    yield request.param
    browser.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})


def test_nothing_is_wider_than_the_window(browser, small, tmp_path, width):
    opened(browser, tmp_path, small)
    assert browser.execute_script('return document.documentElement.scrollWidth') <= width
    assert browser.get_log('browser') == []


def test_no_table_is_cut_whatever_the_names(browser, tmp_path, width):
    opened(browser, tmp_path, named([f'lstm_cell_2.w_0@GRAD@RENAME@block0@{i}' for i in range(12)]))
    browser.find_element(By.ID, 'search').send_keys('lstm')
    room = browser.execute_script(
        'return [...document.querySelectorAll(".scroll")].map(e => [e.clientWidth, e.scrollWidth]);'
    )
    assert len(room) == 3 and all(0 < there >= used for there, used in room)
    assert width < 500 or len(_texts(browser, '#before-largest th')) == 4


def test_dark_mode_has_a_dark_page_and_bright_ink(browser, small, tmp_path):
    shades = {}
    for scheme in ('light', 'dark'):
        browser.execute_cdp_cmd('Emulation.setEmulatedMedia',
                                {'features': [{
                                    'name': 'prefers-color-scheme',
                                    'value': scheme
                                }]})
        opened(browser, tmp_path, small)
        shades[scheme] = [
            sum(
                map(
                    int,
                    re.findall(r'\d+',
                               browser.find_element(By.TAG_NAME,
                                                    'body').value_of_css_property(p))[:3]))
            for p in ('background-color', 'color')
        ]
    browser.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': []})
    assert shades['light'][0] > 600 > 200 > shades['light'][1]
    assert shades['dark'][0] < 200 < 600 < shades['dark'][1]


def test_the_table_has_the_ten_largest(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    assert len(browser.find_elements(By.CSS_SELECTOR, '#before-largest tr')) == 11


def test_names_cannot_break_the_page(browser, tmp_path):
    report = chain(3)
    title = '</script><script>document.title = "broken"</script>'
    opened(browser, tmp_path, report, title)
    assert browser.title == f'Memory of {title}' and browser.get_log('browser') == []


def test_names_are_text_wherever_they_are_drawn(browser, tmp_path):
    names = [
        '<!--<script>', '<a href="http://example.com">link</a>', '<b>bold</b>', '&lt;', '%{x}',
        '1.5'
    ]
    opened(browser, tmp_path, named(names))
    assert browser.get_log('browser') == []
    for key in ('before', 'after'):
        cells = _texts(browser, f'#{key}-largest td:first-child')
        assert set(names) <= set(cells)
        shown = browser.execute_script(f'return memory.sides.{key}.names')
        assert set(names) <= set(shown)
    assert browser.find_elements(By.CSS_SELECTOR, 'body a:not([rel])') == []
    assert browser.find_elements(By.CSS_SELECTOR, 'body b') == []
    for name in names:
        field = browser.find_element(By.ID, 'search')
        field.clear()
        field.send_keys(name)
        hits = _texts(browser, '#hits td:nth-child(2)')
        assert hits.count(name) == 2


def test_hovering_over_a_name_shows_the_name(browser, tmp_path):
    name = '<a href="http://example.com">%{x}</a>'
    opened(browser, tmp_path, named([name]))
    for key in ('before', 'after'):
        assert name in hovered(browser, key, 1, 0.25)
        ActionChains(browser).click().perform()
        assert name in browser.find_element(By.ID, f'{key}-detail').text
    assert browser.find_elements(By.CSS_SELECTOR,
                                 '#tip *, .detail :not(details):not(summary):not(pre)') == []


def _texts(browser, where: str):
    return [e.get_attribute('textContent') for e in browser.find_elements(By.CSS_SELECTOR, where)]


def test_ten_thousand_operators_are_drawn(browser, tmp_path):
    report = chain(10_000)
    opened(browser, tmp_path, report)
    assert (tmp_path / 'memory.html').stat().st_size < MOST_BYTES
    assert browser.execute_script('return memory.sides.before.count') == len(
        report.picture_before.bars) == 10_000
    assert browser.execute_script('return memory.area("before").plotted.bars') > 500
    assert browser.execute_script('return memory.sides.before.bytes') == report.picture_before.bytes
    assert browser.execute_script('return memory.sides.after.sizes') == [
        bar.bytes for bar in report.picture_after.bars
    ]
    assert browser.get_log('browser') == []
