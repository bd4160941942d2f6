"""`python docs/images`: the page of a trained loop, before and after, as a picture in memory.png. Needs Chromium and its driver."""
from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from benchmarks.programs import Options as Size
from benchmarks.programs import build
from transpiler import memory_optimize
from transpiler.report.html import page

_WIDTH, _HEIGHT = 1400, 618
_PROGRAM, _ROWS, _TRIPS = 'gru_loop', 64, 48


def drawn() -> str:
    """The page of the program, in HTML."""
    case = build(_PROGRAM, Size())
    report = memory_optimize(case.main,
                             fetch_list=list(case.fetch),
                             batch_size=_ROWS,
                             trip_count=_TRIPS,
                             heap=False)
    return page(report, f'{_PROGRAM}, a trained loop of {_TRIPS} steps')


def main() -> None:
    options = Options()
    options.binary_location = shutil.which('chromium') or shutil.which('google-chrome') or ''
    for switch in ('headless=new', 'no-sandbox', 'disable-dev-shm-usage', 'disable-gpu',
                   'hide-scrollbars'):
        options.add_argument(f'--{switch}')
    driver = shutil.which('chromedriver')
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'memory.html'
        path.write_text(drawn(), encoding='utf-8')
        with webdriver.Chrome(options=options,
                              service=Service(driver) if driver else Service()) as browser:
            browser.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', {
                'width': _WIDTH,
                'height': _HEIGHT,
                'deviceScaleFactor': 1,
                'mobile': False
            })
            browser.get(path.as_uri())
            browser.save_screenshot(str(Path(__file__).with_name('memory.png')))


if __name__ == '__main__':
    main()
