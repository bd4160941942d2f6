"""Runs the first Python example of a README, in a process that finds the installed package alone."""
import re
import sys

with open(sys.argv[1], encoding='utf-8') as page:
    found = re.search(r'```python\n(.*?)```', page.read(), re.S)
assert found, 'no example'
exec(compile(found.group(1), sys.argv[1], 'exec'))
