# bash completion of putex: /usr/share/bash-completion/completions/putex
# Made from the table of the program, src/cli/table.rs, by
# PUTEX_REWRITE=1 cargo test --test completions

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
        agent | check | finish | lock | grab | release | timing | help) verb=${COMP_WORDS[1]} ;;
    esac
    COMPREPLY=()
    case $prev in
        --config | --password-file | --auth-token-file | --nkey | \
            --creds | --tlsca | --tlscert | --tlskey | --watchdog | \
            --report)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return ;;
        --dir)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -d -- "$cur")
            return ;;
        --start | --stop | --healthcheck | --last-resort)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            return ;;
        --nats | --context | --user | --inbox-prefix | --js-domain | \
            --js-api-prefix | --bucket | --key | --token | \
            --check-failures | --start-grace | --renewal | -r | \
            --failures | -f | --confirmations | -c | --slots | -j | \
            --quiet-for | --hard-after | --timeout | --wait | -w | \
            --conflict-exit-code | -E | --kill-after | -k | --hold | \
            --once | --command | --for | --as | --holder | --drift | \
            --replicas | --notify-fd)
            return ;;
    esac
    if [[ $cur == -* ]]; then
        case $verb in
            agent | check | finish | lock | grab | release)
                options+=' --config --nats --context --user --password-file
                    --auth-token-file --nkey --creds --tlsca --tlscert --tlskey
                    --tlsfirst --inbox-prefix --js-domain --js-api-prefix --dir
                    --bucket --replicas --allow-memory --verbose -v --quiet -q' ;;
        esac
        case $verb in
            agent | check | finish)
                options+=' --key --start --stop --healthcheck --check-failures
                    --start-grace --last-resort --watchdog --notify-fd --syslog' ;;
        esac
        case $verb in
            agent | check | finish | lock)
                options+=' --token' ;;
        esac
        case $verb in
            agent | check | finish | timing)
                options+=' --renewal -r --failures -f --confirmations -c' ;;
        esac
        case $verb in
            lock | grab)
                options+=' --shared -s --exclusive -e -x --timeout --wait -w
                    --conflict-exit-code -E' ;;
        esac
        case $verb in
            lock)
                options+=' --slots -j --soft --quiet-for --hard-after --nb --nonblock
                    --nonblocking -n --kill-after -k --hold --once --report
                    --renewal -r --failures -f --close -o --command -c' ;;
        esac
        case $verb in
            grab)
                options+=' --nb --nonblock --nonblocking -n --for' ;;
        esac
        case $verb in
            grab | release)
                options+=' --as' ;;
        esac
        case $verb in
            release)
                options+=' --force --holder' ;;
        esac
        case $verb in
            agent | check | finish | lock | grab | timing)
                options+=' --drift' ;;
        esac
        case $verb in
            check)
                options+=' --connect' ;;
        esac
        case $verb in
            agent | check | finish | lock | grab | release | timing | help)
                options+=' --help -h --version -V' ;;
        esac
    elif ((COMP_CWORD == 1)); then
        options='agent check finish lock grab release timing help'
    elif [[ $verb == help ]] && ((COMP_CWORD == 2)); then
        options='agent tutorial lock grab release theory config trouble check
            finish help timing guard commands managers environment files
            signals exit messages examples tls bucket servers record
            states fencing limits caveats'
    elif [[ $verb == lock ]] && ((COMP_CWORD > 2)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
}

complete -F _putex putex
