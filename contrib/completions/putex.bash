# bash completion of putex: /usr/share/bash-completion/completions/putex
# Made from the table of the program, src/cli/table.rs, by
# PUTEX_REWRITE=1 cargo test --test command_line

# Sets place to that of the command behind the name of a lock, among the words that bash
# makes of the line, or to 0 before it.
_putex_command() {
    local line=$COMP_LINE word at
    local -a words=() places=()
    # What no blank parts is one word: --option=value, and nats://host:4222, are several to bash.
    for ((at = 0; at <= COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
        if ((at > 0)) && [[ $line != [[:space:]]* ]]; then
            words[-1]+=$word
        else
            words+=("$word")
            places+=("$at")
        fi
        line=${line#*"$word"}
    done
    at=2
    while [[ ${words[at]} == -?* ]]; do
        case ${words[at]} in
            --)
                ((at++))
                break ;;
            --config | --nats | --context | --user | --password-file | --auth-token-file | --nkey | --creds | --tlsca | --tlscert | --tlskey | --inbox-prefix | --js-domain | --js-api-prefix | --dir | --bucket | --replicas | --token | --slots | --quiet-for | --hard-after | --conflict-exit-code | --timeout | --wait | --kill-after | --hold | --report | --renewal | --failures | --command | --drift)
                ((at++)) ;;
            *)
                # The value of the last letter is the next word.
                [[ ${words[at]} =~ ^-[^-jEwkrfc]*[jEwkrfc]$ ]] && ((at++)) ;;
        esac
        ((at++))
    done
    [[ ${words[at + 1]} == -- ]] && ((at + 2 < ${#words[@]})) && ((at++))
    place=${places[at + 1]:-0}
}

_putex() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    # To bash, --option=value is three words.
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    local verb=agent options=
    case ${COMP_WORDS[1]} in
        agent | check | finish | timing | lock | grab | release | lease | put | status | doctor | init | switchover | pause | resume | help) verb=${COMP_WORDS[1]} ;;
    esac
    COMPREPLY=()
    local place=0
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
    case $prev in
        --config | --password-file | --auth-token-file | --nkey | \
            --creds | --tlsca | --tlscert | --tlskey | --watchdog | \
            --report | --metrics-file)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return ;;
        --dir)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -d -- "$cur")
            return ;;
        --start | --stop | --healthcheck | --last-resort | \
            --on-change)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            return ;;
        --nats | --context | --user | --inbox-prefix | --js-domain | \
            --js-api-prefix | --bucket | --replicas | --key | --token | \
            --priority | --failback | --seats | --agents | \
            --check-failures | --start-grace | --renewal | -r | \
            --failures | -f | --confirmations | -c | --slots | -j | \
            --quiet-for | --hard-after | --conflict-exit-code | -E | \
            --timeout | --wait | -w | --kill-after | -k | --hold | \
            --command | --for | --as | --holder | --is | -e | --print | \
            --from | --to | --reason | --ignore | --samples | --lease | \
            --drift | --notify-fd)
            return ;;
    esac
    if [[ $cur == -* ]]; then
        case $verb in
            agent | check | finish | lock | grab | release | lease | put | status | doctor | init | switchover | pause | resume)
                options+=' --config --nats --context --user --password-file
                    --auth-token-file --nkey --creds --tlsca --tlscert --tlskey
                    --tlsfirst --inbox-prefix --js-domain --js-api-prefix --dir
                    --bucket' ;;
        esac
        case $verb in
            agent | check | finish | lock | grab | release | lease | put | init)
                options+=' --replicas --allow-memory' ;;
        esac
        case $verb in
            agent | check | finish)
                options+=' --key --start --stop --healthcheck --priority --failback
                    --seats --agents --observe --check-failures --start-grace
                    --last-resort --on-change --metrics-file --notify-fd
                    --syslog' ;;
        esac
        case $verb in
            agent | check | finish | lock)
                options+=' --token' ;;
        esac
        case $verb in
            agent | check | finish | doctor)
                options+=' --watchdog' ;;
        esac
        case $verb in
            agent | check | finish | timing | doctor)
                options+=' --renewal -r --failures -f --confirmations -c' ;;
        esac
        case $verb in
            lock | grab)
                options+=' --shared -s --exclusive -e -x --nb --nonblock --nonblocking
                    -n --conflict-exit-code -E' ;;
        esac
        case $verb in
            lock)
                options+=' --slots -j --soft --quiet-for --hard-after --kill-after -k
                    --hold --report --renewal -r --failures -f --close -o
                    --command -c' ;;
        esac
        case $verb in
            lock | grab | lease)
                options+=' --timeout --wait -w' ;;
        esac
        case $verb in
            grab)
                options+=' --for' ;;
        esac
        case $verb in
            grab | release | lease | put | status)
                options+=' --as' ;;
        esac
        case $verb in
            release)
                options+=' --force --holder' ;;
        esac
        case $verb in
            lease)
                options+=' --for' ;;
        esac
        case $verb in
            status | doctor)
                options+=' --json' ;;
        esac
        case $verb in
            status)
                options+=' --is -e --print' ;;
        esac
        case $verb in
            switchover)
                options+=' --from --to --timeout --wait -w' ;;
        esac
        case $verb in
            pause)
                options+=' --for --reason' ;;
        esac
        case $verb in
            pause | resume)
                options+=' --timeout --wait -w' ;;
        esac
        case $verb in
            doctor)
                options+=' --ignore --strict --samples' ;;
        esac
        case $verb in
            put)
                options+=' --lease' ;;
        esac
        case $verb in
            agent | check | finish | timing | lock | grab | lease | doctor)
                options+=' --drift' ;;
        esac
        case $verb in
            agent | check | finish | lock | grab | release | lease | put | switchover | pause | resume)
                options+=' --verbose -v --quiet -q' ;;
        esac
        case $verb in
            check)
                options+=' --connect' ;;
        esac
        case $verb in
            agent | check | finish | timing | lock | grab | release | lease | put | status | doctor | init | switchover | pause | resume | help)
                options+=' --help -h --version -V' ;;
        esac
    elif ((COMP_CWORD == 1)); then
        options='agent check finish timing lock grab release lease put status doctor init switchover pause resume help'
    elif [[ $verb == help ]] && ((COMP_CWORD == 2)); then
        options='agent check finish timing lock grab lease status switchover
            pause doctor store config examples trouble messages commands
            managers theory limits'
    elif [[ $verb == lease ]] && ((COMP_CWORD == 2)); then
        options='claim extend check expire list'
    fi
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
}

complete -F _putex putex
