"""The page in a real headless Chromium (Debian: chromium, chromium-driver)."""
from __future__ import annotations

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

MOST_SECONDS = 3.0


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
        browser.execute_script(
            f'return Math.max(...document.getElementById("{key}-area").data.slice(-1)[0].y)')
        for key in ('before', 'after')
    ]
    assert drawn == peaks


def test_before_and_after_have_one_scale(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    ranges = [
        browser.execute_script(f'return document.getElementById("{key}-area").layout.yaxis.range')
        for key in ('before', 'after')
    ]
    assert ranges[0] == ranges[1]


def test_hovering_shows_the_size_the_operator_and_the_source_line(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    plot = browser.find_element(By.CSS_SELECTOR, '#before-lanes .nsewdrag')
    ActionChains(browser).move_to_element(plot).pause(0.5).perform()
    text = browser.find_element(By.CSS_SELECTOR, '#before-lanes .hoverlayer').text
    assert 'KiB' in text and 'made by relu' in text and 'model.py' in text


def test_a_search_by_name_lists_the_variable(browser, small, tmp_path):
    opened(browser, tmp_path, small)
    browser.find_element(By.ID, 'search').send_keys('V17')
    assert browser.find_element(By.ID, 'found').text == '2 found'
    rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, '#hits tr')]
    assert len(rows) == 2 and all('v17' in row and 'line 17' in row for row in rows)


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
        ticks = _texts(browser, f'#{key}-lanes .ytick text')
        legend = _texts(browser, f'#{key}-area .legendtext')
        cells = _texts(browser, f'#{key}-largest td:first-child')
        assert set(names) <= set(ticks) and set(names) <= set(legend) and set(names) <= set(cells)
    assert browser.find_elements(By.CSS_SELECTOR, 'body a:not([rel])') == []
    assert browser.find_elements(By.CSS_SELECTOR, 'svg a, svg tspan[style*="bold"]') == []
    for name in names:
        field = browser.find_element(By.ID, 'search')
        field.clear()
        field.send_keys(name)
        hits = _texts(browser, '#hits td:nth-child(2)')
        assert hits.count(name) == 2


def test_hovering_over_a_name_shows_the_name(browser, tmp_path):
    name = '<a href="http://example.com">%{x}</a>'
    opened(browser, tmp_path, named([name]))
    for plot, curve in (('before-lanes', 0), ('before-area', 1)):
        point = [{'curveNumber': curve, 'pointNumber': 0}]
        browser.execute_script('Plotly.Fx.hover(arguments[0], arguments[1])', plot, point)
        assert name in ''.join(_texts(browser, f'#{plot} .hoverlayer text'))
        assert browser.find_elements(By.CSS_SELECTOR, f'#{plot} .hoverlayer a') == []


def _texts(browser, where: str):
    return [e.get_attribute('textContent') for e in browser.find_elements(By.CSS_SELECTOR, where)]


def test_ten_thousand_operators_open_in_time(browser, tmp_path):
    opened(browser, tmp_path, chain(10_000))
    seconds = []
    for _ in range(2):  # the machine may be busy with something else: the better of two
        browser.refresh()
        seconds.append(
            browser.execute_script(
                'return performance.getEntriesByType("navigation")[0].loadEventEnd') / 1000)
    assert 0 < min(seconds) < MOST_SECONDS
    assert browser.execute_script('return document.getElementById("after-lanes").data.length') == 1
