//! The completion of zsh.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use putex::cli::lease::ACTIONS;
use putex::cli::table::{Flag, Subcommand};
use putex::cli::topics::TOPICS;

use super::{ORIGIN, Value, Valued, by_takers, subcommands, value_of};
use crate::mdoc::run_tool;
use crate::support::programs;

/// Returns a text in quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Returns the specifications of a flag for `_arguments`.
fn argument(flag: &Flag) -> Vec<String> {
    let about = flag.help.replace('[', "\\[").replace(']', "\\]");
    let called = flag.value.replace(':', "\\:");
    let value = match value_of(flag) {
        Value::None => String::new(),
        Value::File => format!(":{called}:_files"),
        Value::Folder => format!(":{called}:_path_files -/"),
        Value::Command => format!(":{called}: _command_names -e"),
        Value::Text => format!(":{called}: "),
    };
    let (behind_short, behind_long) = match value_of(flag) {
        Value::None => ("", ""),
        Value::File | Value::Folder | Value::Command | Value::Text => ("+", "="),
    };
    let behind = |spelling: String| match spelling.starts_with("--") {
        true => spelling + behind_long,
        false => spelling + behind_short,
    };
    flag.spellings()
        .map(behind)
        // -v and -q count.
        .map(|name| match flag.long {
            "verbose" | "quiet" => format!("*{name}"),
            _ => name,
        })
        .map(|name| quoted(&format!("{name}[{about}]{value}")))
        .collect()
}

/// Returns the part that leaves the words behind the name of a lock to the command there.
fn command_of_lock() -> String {
    let Valued { long, letters } = Valued::of_lock();
    format!(
        r#"if [[ $verb == lock ]]; then
    local -i at=2
    while [[ $words[at] == -?* ]]; do
        case $words[at] in
            --) ((at++)); break ;;
            {}) ((at++)) ;;
            # The value of the last letter is the next word.
            -[^-{letters}]#[{letters}]) ((at++)) ;;
        esac
        ((at++))
    done
    [[ $words[at+1] == -- ]] && ((at + 1 < CURRENT)) && ((at++))
    if ((at < CURRENT)); then
        shift $at words
        ((CURRENT -= at))
        # What begins with a hyphen is no command.
        [[ $words[1] == -* ]] || _normal
        return
    fi
fi
"#,
        long.join("|")
    )
}

/// Returns the file.
pub(crate) fn script() -> String {
    let words: Vec<_> = subcommands().into_iter().map(Subcommand::name).collect();
    let mut out = format!(
        "#compdef putex\n\
         # zsh completion of putex: /usr/share/zsh/vendor-completions/_putex\n\
         {ORIGIN}\n\
         local verb=\n\
         local -a flags verbs topics actions\n\
         verbs=(\n"
    );
    let described =
        |word: &str, about: &str| quoted(&format!("{word}:{}", about.replace(':', "\\:")));
    for subcommand in subcommands() {
        let _ = writeln!(out, "    {}", described(subcommand.name(), subcommand.about()));
    }
    out.push_str(")\ntopics=(\n");
    for topic in TOPICS {
        let _ = writeln!(out, "    {}", described(topic.name, topic.about));
    }
    let _ = write!(out, ")\nactions=({})\n", ACTIONS.join(" "));
    let _ = write!(
        out,
        "if ((CURRENT > 2)) && [[ $words[2] == ({}) ]]; then\n    \
         verb=$words[2]\n    \
         shift words\n    \
         ((CURRENT--))\n\
         fi\n",
        words.join("|")
    );
    out.push_str(&command_of_lock());
    for (takers, flags) in by_takers() {
        let _ = writeln!(
            out,
            "if [[ ${{verb:-agent}} == ({}) ]]; then\n    flags+=(",
            takers.join("|")
        );
        for line in flags.into_iter().flat_map(argument) {
            let _ = writeln!(out, "        {line}");
        }
        out.push_str("    )\nfi\n");
    }
    out.push_str(
        "# A hint at what is to be typed keeps options from being typed out.\n\
         if [[ $PREFIX != -* ]]; then\n    \
         case $verb in\n        \
         '') ((CURRENT == 2)) && flags+=('1:command:{_describe command verbs}') ;;\n        \
         agent|check|finish) flags+=(':server: ' ':bucket: ' ':key: ' ':token: ') ;;\n        \
         lock|grab|release) flags+=(':name: ') ;;\n        \
         lease) flags+=('1:action:{_describe action actions}' ':name: ') ;;\n        \
         put) flags+=(':key: ' ':value: ') ;;\n        \
         status) flags+=('*:key: ') ;;\n        \
         switchover|pause|resume|doctor) flags+=(':key: ') ;;\n        \
         help) flags+=('1:topic:{_describe topic topics}') ;;\n    \
         esac\n\
         else\n    \
         # Options may come behind arguments too.\n    \
         flags+=('*: :{true}')\n\
         fi\n\
         _arguments -s : $flags\n",
    );
    out
}

/// Types a line, and TAB, into a shell on a terminal that has this completion: prints what then
/// stands there. A shell that hangs ends by itself. The terminal shows what is typed, too.
const TYPE: &str = r#"
script -qec 'zsh -f -i' /dev/null <<'END'
TMOUT=120 PROMPT= RPROMPT=
fpath=($PWD/contrib/completions $fpath)
autoload -Uz compinit && compinit -u -D
zstyle ':completion:*' insert-tab false
type-it() {
    BUFFER=$TYPED; CURSOR=$#BUFFER; zle complete-word
    print -r -- 'be''come: '$BUFFER; exit
}
zle -N type-it; zle -N zle-line-init type-it
END
"#;

/// Returns what zsh makes of the last of these words when TAB is typed behind it, unless it stays
/// as it is.
pub(crate) fn offers(words: &[&str]) -> Option<BTreeSet<String>> {
    for tool in ["zsh", "script"] {
        programs::tool(tool)?;
    }
    let said = run_tool(&["env", &format!("TYPED={}", words.join(" ")), "sh", "-c", TYPE])?;
    let mut lines = said.lines().filter_map(|line| Some(line.split_once("become: ")?.1));
    let line = lines.next().unwrap_or_else(|| panic!("{said}"));
    let word = line.split_whitespace().next_back().filter(|word| Some(word) != words.last());
    Some(word.map(str::to_owned).into_iter().collect())
}
