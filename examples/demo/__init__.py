"""The demo: workflows that charge accounts, first without the guard, then with it.

Run by `make demo` or `python -m examples.demo`. The modules, from facts to picture:

* `facts`, `history`: what happened, read from execution histories and task outputs;
* `ledger`, `sweep`, `handovers`, `turns`, `bill`, `incidents`, `checks`, `verdict`: what follows
  from it, pure functions over recorded facts;
* `lanes`, `colours`, `draw`, `table`, `page`: the picture, as data, as SVG and PNG, as a page;
* `scenario`, `durable_act`, `readers_act`, `runner`: the acts, and who runs them on AWS;
* `console`, `shell_lines`: what is said in the terminal.
"""
