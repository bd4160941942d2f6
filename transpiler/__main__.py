"""python -m transpiler."""

from transpiler.cli import main

if __name__ == '__main__':
    main()
