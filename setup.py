"""What setup.cfg cannot say: the address of the repository, which only whoever publishes it knows."""
import os

from setuptools import setup

# Empty where nobody named one: `make release URL=...` does.
URL = os.environ.get('PROJECT_URL', '')
PAGES = {
    'Source': '',
    'Documentation': '/tree/main/docs',
    'Changes': '/blob/main/CHANGELOG.md',
    'Issues': '/issues'
}

setup(url=URL, project_urls={name: URL + page for name, page in PAGES.items()} if URL else {})
