//! The completion of bash. It needs nothing else than bash.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use putex::cli::lease::ACTIONS;
use putex::cli::table::{FLAGS, Subcommand};
use putex::cli::topics::TOPICS;

use super::{ORIGIN, Value, Valued, by_takers, subcommands, value_of};
use crate::mdoc::{run_tool, spellings};

/// Width of a list of words, in columns.
const COLUMNS_MAX: usize = 60;

/// Returns the file.
pub(crate) fn script() -> String {
    let names: Vec<_> = subcommands().into_iter().map(Subcommand::name).collect();
    let topics: Vec<_> = TOPICS.iter().map(|topic| topic.name).collect();
    let mut out = format!(
        "# bash completion of putex: /usr/share/bash-completion/completions/putex\n\
         {ORIGIN}\n\
         {}\n\
         _putex() {{\n\
         \x20   local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}}\n\
         \x20   # To bash, --option=value is three words.\n\
         \x20   if [[ $cur == = ]]; then\n\
         \x20       cur=\n\
         \x20   elif [[ $prev == = ]]; then\n\
         \x20       prev=${{COMP_WORDS[COMP_CWORD - 2]}}\n\
         \x20   fi\n\
         \x20   local verb=agent options=\n\
         \x20   case ${{COMP_WORDS[1]}} in\n\
         \x20       {}) verb=${{COMP_WORDS[1]}} ;;\n\
         \x20   esac\n\
         \x20   COMPREPLY=()\n\
         {OF_COMMAND}\
         \x20   case $prev in\n",
        place_of_command(),
        names.join(" | ")
    );
    for (kind, action) in [
        (Value::File, Some("f")),
        (Value::Folder, Some("d")),
        (Value::Command, Some("c")),
        (Value::Text, None),
    ] {
        let flags = FLAGS.iter().filter(|flag| value_of(flag) == kind);
        let mut words: Vec<_> = Vec::new();
        for word in flags.flat_map(spellings) {
            // Two commands may have a flag of this name.
            if !words.contains(&word) {
                words.push(word);
            }
        }
        let _ =
            write!(out, "        {})\n            ", wrapped(&words, " |", " \\\n            "));
        if let Some(action) = action {
            let _ = write!(
                out,
                "compopt -o filenames 2>/dev/null\n            \
                 mapfile -t COMPREPLY < <(compgen -{action} -- \"$cur\")\n            "
            );
        }
        out.push_str("return ;;\n");
    }
    out.push_str("    esac\n    if [[ $cur == -* ]]; then\n");
    for (takers, flags) in by_takers() {
        let words: Vec<_> = flags.into_iter().flat_map(spellings).collect();
        let _ = write!(
            out,
            "        case $verb in\n            {})\n                \
             options+=' {}' ;;\n        esac\n",
            takers.join(" | "),
            wrapped(&words, "", "\n                    ")
        );
    }
    let _ = write!(
        out,
        "    elif ((COMP_CWORD == 1)); then\n        options='{}'\n    \
         elif [[ $verb == help ]] && ((COMP_CWORD == 2)); then\n        options='{}'\n    \
         elif [[ $verb == lease ]] && ((COMP_CWORD == 2)); then\n        options='{}'\n    fi\n    \
         mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n}}\n\n\
         complete -F _putex putex\n",
        names.join(" "),
        wrapped(&topics, "", "\n            "),
        ACTIONS.join(" ")
    );
    out
}

/// Returns the function that finds the command of `putex lock`.
fn place_of_command() -> String {
    let Valued { long, letters } = Valued::of_lock();
    format!(
        r#"# Sets place to that of the command behind the name of a lock, among the words that bash
# makes of the line, or to 0 before it.
_putex_command() {{
    local line=$COMP_LINE word at
    local -a words=() places=()
    # What no blank parts is one word: --option=value, and nats://host:4222, are several to bash.
    for ((at = 0; at <= COMP_CWORD; at++)); do
        word=${{COMP_WORDS[at]}}
        if ((at > 0)) && [[ $line != [[:space:]]* ]]; then
            words[-1]+=$word
        else
            words+=("$word")
            places+=("$at")
        fi
        line=${{line#*"$word"}}
    done
    at=2
    while [[ ${{words[at]}} == -?* ]]; do
        case ${{words[at]}} in
            --)
                ((at++))
                break ;;
            {})
                ((at++)) ;;
            *)
                # The value of the last letter is the next word.
                [[ ${{words[at]}} =~ ^-[^-{letters}]*[{letters}]$ ]] && ((at++)) ;;
        esac
        ((at++))
    done
    [[ ${{words[at + 1]}} == -- ]] && ((at + 2 < ${{#words[@]}})) && ((at++))
    place=${{places[at + 1]:-0}}
}}
"#,
        wrapped(
            &long,
            " |",
            " \
                "
        )
    )
}

/// The completion of the command of `putex lock`, by bash-completion or by bash alone.
const OF_COMMAND: &str = r#"    local place=0
    [[ $verb == lock ]] && _putex_command
    if ((place > 0)); then
        # What begins with a hyphen is no command.
        [[ ${COMP_WORDS[place]} == -* ]] && return
        if [[ $(declare -F _comp_command_offset) ]]; then
            _comp_command_offset "$place"
        elif [[ $(declare -F _command_offset) ]]; then
            _command_offset "$place"
        else
            local action=f
            ((place == COMP_CWORD)) && action=c
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -"$action" -- "$cur")
        fi
        return
    fi
"#;

/// Returns words in lines, each word but the last with `mark` behind it.
fn wrapped(words: &[impl AsRef<str>], mark: &str, line_break: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for (index, word) in words.iter().enumerate() {
        let word = word.as_ref();
        if index > 0 {
            let full = column + word.len() > COLUMNS_MAX;
            out.push_str(mark);
            out.push_str(if full { line_break } else { " " });
            column = if full { 0 } else { column };
        }
        out.push_str(word);
        column += word.len() + mark.len() + 1;
    }
    out
}

/// Returns the words that bash makes of one: the signs that part words are words too.
fn pieces(word: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let parts = |c: char| "=:".contains(c);
    for c in word.chars() {
        match pieces.last_mut() {
            Some(piece) if piece.ends_with(parts) == parts(c) => piece.push(c),
            Some(_) | None => pieces.push(c.to_string()),
        }
    }
    if pieces.is_empty() { vec![String::new()] } else { pieces }
}

/// Returns the candidates of bash for the last of these words.
pub(crate) fn offers(words: &[&str]) -> Option<BTreeSet<String>> {
    let script = ". contrib/completions/putex.bash || exit\n\
                  COMP_LINE=$1; shift\n\
                  COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) COMP_POINT=${#COMP_LINE}\n\
                  [[ $(complete -p putex) == *'-F _putex putex' ]] || exit\n\
                  _putex putex \"${@: -1}\" \"${@: -2:1}\" || exit\n\
                  printf '%s\\n' \"${COMPREPLY[@]}\"";
    let line = words.join(" ");
    let pieces: Vec<String> = words.iter().flat_map(|word| pieces(word)).collect();
    let mut call = vec!["bash", "--norc", "-c", script, "bash", &line];
    call.extend(pieces.iter().map(String::as_str));
    let said = run_tool(&call)?;
    Some(said.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}
