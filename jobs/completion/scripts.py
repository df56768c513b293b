"""Completion scripts of bash, zsh and fish: words and flags of tools, choices, files. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from stratalog.jobs.completion.table import CompletedTool

HELP = "--help"


def bash_script(tools: Sequence[CompletedTool]) -> str:
    """For `source <(strata completion bash)`."""
    names = " ".join(tool.name for tool in tools)
    cases = "\n".join(_case(tool) for tool in tools)
    return f"""_strata() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{names} {HELP} --version" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  if [ "$words" = "<file>" ]; then
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  fi
}}
complete -F _strata strata
"""


def zsh_script(tools: Sequence[CompletedTool]) -> str:
    """For a file `_strata` in `$fpath`, or `source <(strata completion zsh)`."""
    names = "\n".join(f"      {shlex.quote(f'{tool.name}:{tool.purpose}')}" for tool in tools)
    cases = "\n".join(_case(tool) for tool in tools)
    return f"""#compdef strata
_strata() {{
  local current="${{words[CURRENT]}}" previous="${{words[CURRENT-1]}}" tool="${{words[2]}}"
  if (( CURRENT == 2 )); then
    local -a tools
    tools=(
{names}
    )
    _describe 'tool' tools
    return
  fi
  local words=""
  case "$tool" in
{cases}
  esac
  if [[ "$words" == "<file>" ]]; then
    _files
  else
    compadd -- ${{=words}}
  fi
}}
compdef _strata strata
"""


def _case(tool: CompletedTool) -> str:
    """What bash and zsh have in common: `words` for what stands before the cursor in a tool's command line."""
    lines = [f"    {tool.name})", '      case "$previous" in']
    files = [spelling for flag in tool.flags if flag.is_file for spelling in flag.spellings]
    plain = [
        spelling
        for flag in tool.flags
        if flag.has_value and not flag.is_file and not flag.choices
        for spelling in flag.spellings
    ]
    if files:
        lines.append(f'        {"|".join(files)}) words="<file>" ;;')
    lines += [
        f'        {"|".join(flag.spellings)}) words="{" ".join(flag.choices)}" ;;'
        for flag in tool.flags
        if flag.choices
    ]
    if plain:
        lines.append(f"        {'|'.join(plain)}) ;;")
    every = [*tool.words, *(f"--{flag.name}" for flag in tool.flags), HELP]
    lines += [f'        *) words="{" ".join(every)}" ;;', "      esac ;;"]
    return "\n".join(lines)


def fish_script(tools: Sequence[CompletedTool]) -> str:
    """For `strata completion fish | source`."""
    first = "complete -c strata -n __fish_use_subcommand"
    names = [f"{first} -a {tool.name} -d {shlex.quote(tool.purpose)}" for tool in tools]
    flags = [line for tool in tools for line in _fish_lines(tool)]
    return "\n".join(["complete -c strata -f", *names, *flags]) + "\n"


def _fish_lines(tool: CompletedTool) -> Iterable[str]:
    seen = f"complete -c strata -n '__fish_seen_subcommand_from {tool.name}'"
    if tool.words:
        yield f"{seen} -a {shlex.quote(' '.join(tool.words))}"
    for flag in tool.flags:
        letter = f" -s {flag.letter}" if flag.letter else ""
        value = " -r" if flag.has_value else ""
        value += " -F" if flag.is_file else ""
        value += f" -x -a {shlex.quote(' '.join(flag.choices))}" if flag.choices else ""
        yield f"{seen} -l {flag.name}{letter}{value}"
    yield f"{seen} -l help"


SCRIPTS: Mapping[str, Callable[[Sequence[CompletedTool]], str]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}
"""Shell -> its script, of all tools."""
