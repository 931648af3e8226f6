"""`wattloop completion`: the scripts that make a shell complete `wattloop`, and the words that they ask for.

The scripts ask `wattloop completion words` at each TAB, so that they stay right after an update. Its answer has the
form of Cobra's, which kubectl reads too: a line for each word, then `:0` if file names fit as well, else `:4`.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points

from wattloop.commands.contract import GROUP, Command, subcommand_parser
from wattloop.commands.main import SERVICES

FILES_FIT, NO_FILES = ":0", ":4"
# Values of options that are names of files or folders, by their placeholder.
FILE_PLACEHOLDERS = ("FILE", "DIR", "PLAN", "DATABASE")
BASH = """\
# Completion of wattloop in bash; for every shell: wattloop completion bash > /etc/bash_completion.d/wattloop
_wattloop() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :0) [ ${#COMPREPLY[@]} -eq 0 ] && type compopt > /dev/null 2>&1 && compopt -o default ;;
            :4) ;;
            *) COMPREPLY+=("$line") ;;
        esac
    done < <("${COMP_WORDS[0]}" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
}
complete -F _wattloop wattloop
"""
ZSH = """\
#compdef wattloop
# Completion of wattloop in zsh, as a file _wattloop of a folder in $fpath, or by: source <(wattloop completion zsh)
_wattloop() {
    local -a lines
    lines=("${(@f)$("${words[1]}" completion words -- "${(@)words[2,CURRENT]}" 2> /dev/null)}")
    (( ${#lines} > 1 )) && compadd -- "${(@)lines[1,-2]}"
    [[ ${lines[-1]} == :0 ]] && _files
}
if [[ ${funcstack[1]} == _wattloop ]]; then _wattloop "$@"; else compdef _wattloop wattloop; fi
"""
FISH = """\
# Completion of wattloop in fish: wattloop completion fish > ~/.config/fish/completions/wattloop.fish
function __wattloop_words
    set -l words (commandline --cut-at-cursor --tokenize-output --current-process 2> /dev/null; or commandline -opc)
    set -l current (commandline --current-token --cut-at-cursor)
    set -l lines ($words[1] completion words -- $words[2..-1] $current 2> /dev/null)
    string match --invert --regex '^:[04]$' -- $lines
    contains -- :0 $lines; and __fish_complete_path $current
end
complete --command wattloop --no-files --arguments '(__wattloop_words)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
WORDS = "words"


def completed(words: Sequence[str]) -> tuple[list[str], bool]:
    """The words that complete a command line, and whether file names fit too.

    Args:
        words: The words after `wattloop`; the last one is incomplete, and may be empty.

    Example:
        >>> completed(["comp"])
        (['completion'], False)
        >>> completed(["completion", "f"])
        (['fish'], False)
    """
    # Bash splits `--format=json` at the equals sign.
    given, last = [word for word in words[:-1] if word != "="], "" if words[-1] == "=" else words[-1]
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if not given:
        return _with_prefix([*sorted(found.keys() - SERVICES.keys()), "--help", "--version"], last), False
    if given[0] not in found:
        return [], False
    return _completed_arguments(found[given[0]], given[1:], last)


def _completed_arguments(entry: EntryPoint, given: Sequence[str], last: str) -> tuple[list[str], bool]:
    command: Command = entry.load()
    place = _Place(subcommand_parser(entry.name, command))
    for word in given:
        place.pass_word(word)
    name, equals, value = last.partition("=")
    option = place.option(name) if equals else None
    if option is not None:
        return [f"{name}={each}" for each in _with_prefix(_choices(option), value)], _is_file(option)
    if place.awaited is not None:
        return _with_prefix(_choices(place.awaited), last), _is_file(place.awaited)
    if last.startswith("-"):
        return _with_prefix(place.options(), last), False
    positional = place.positional()
    if positional is None:
        return [], False
    return _with_prefix(_choices(positional), last), positional.choices is None


class _Place:
    """Where a command line is: in which parser, and what it needs next."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser
        self.awaited: argparse.Action | None = None
        self.passed = 0

    def pass_word(self, word: str) -> None:
        if self.awaited is not None:
            self.awaited = None
        elif word.startswith("-") and len(word) > 1:
            option = None if "=" in word else self.option(word)
            self.awaited = option if option is not None and option.nargs != 0 else None
        else:
            positional = self.positional()
            inner = None if positional is None or positional.choices is None else positional.choices
            self.passed += 1
            if isinstance(inner, dict) and word in inner:
                self.parser, self.passed = inner[word], 0

    def option(self, name: str) -> argparse.Action | None:
        return next((action for action in self.parser._actions if name in action.option_strings), None)

    def options(self) -> list[str]:
        return [
            name
            for action in self.parser._actions
            for name in action.option_strings
            if action.help != argparse.SUPPRESS
        ]

    def positional(self) -> argparse.Action | None:
        """The next positional argument; the last one may be repeated."""
        positionals = [action for action in self.parser._actions if not action.option_strings]
        if self.passed < len(positionals):
            return positionals[self.passed]
        return positionals[-1] if positionals and positionals[-1].nargs in ("*", "+") else None


def _choices(action: argparse.Action) -> Iterable[str]:
    return map(str, action.choices or ())


def _is_file(action: argparse.Action) -> bool:
    return action.choices is None and str(action.metavar).startswith(FILE_PLACEHOLDERS)


def _with_prefix(words: Iterable[str], prefix: str) -> list[str]:
    return [word for word in words if word.startswith(prefix)]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=(*SCRIPTS, WORDS), help="the shell; words: the words that its script asks for")
    parser.add_argument("line", nargs="*", metavar="WORD", help="with words: those of the command line, after --")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.shell in SCRIPTS:
        sys.stdout.write(SCRIPTS[arguments.shell])
        return 0
    words, files_fit = completed(arguments.line or [""])
    sys.stdout.writelines(f"{line}\n" for line in [*words, FILES_FIT if files_fit else NO_FILES])
    return 0


COMMAND = Command(
    description="Prints a script that makes a shell complete wattloop's subcommands, options and their values. kubectl "
    "completes `kubectl wattloop` by itself.",
    example="  source <(wattloop completion bash)\n"
    "  wattloop completion zsh > ~/.zfunc/_wattloop\n"
    "  wattloop completion fish > ~/.config/fish/completions/wattloop.fish",
    configure=_configure,
    run=_run,
)
