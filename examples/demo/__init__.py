"""The demo: workflows that charge accounts, first without the guard, then with it.

Run by `make demo` or `python -m examples.demo`. The modules, from facts to picture:

* `facts`, `history`: what happened, read from execution histories and task outputs;
* `ledger`, `checks`, `bill`: what follows from it, pure functions over recorded facts;
* `lanes`, `draw`, `page`: the picture, as data, as SVG and PNG, as a page;
* `scenario`, `runner`, `console`, `keep`: the only modules that talk to AWS or to the terminal.
"""
