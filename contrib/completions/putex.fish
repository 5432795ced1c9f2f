# fish completion of putex: /usr/share/fish/vendor_completions.d/putex.fish
# Made from the table of the program, src/cli/table.rs, by
# PUTEX_REWRITE=1 cargo test --test command_line

function __putex_runs -d 'Whether the command is one of these'
    set -l words (commandline -opc)
    set -l verb agent
    if contains -- "$words[2]" agent check finish lock grab release lease put status switchover pause resume doctor timing help
        set verb $words[2]
    end
    if test $verb = lock; and __putex_command >/dev/null
        return 1
    end
    contains -- $verb $argv
end

function __putex_command -d 'The words of the command behind the name of a lock'
    set -l words (commandline -opc) (commandline -ct)
    test "$words[2]" = lock; or return
    set -e words[1..2]
    while string match -q -- '-?*' $words[1]
        set -l word $words[1]
        set -e words[1]
        test "$word" = --; and break
        # The value may be the next word.
        if contains -- $word --config --nats --context --user --password-file --auth-token-file --nkey --creds --tlsca --tlscert --tlskey --inbox-prefix --js-domain --js-api-prefix --dir --bucket --token --slots --quiet-for --hard-after --timeout --wait --conflict-exit-code --kill-after --hold --report --renewal --failures --command --drift --replicas
            or string match -rq -- '^-[^-jwEkrfc]*[jwEkrfc]$' $word
            set -e words[1]
        end
    end
    # The name.
    set -e words[1]
    if test "$words[1]" = --; and set -q words[2]
        set -e words[1]
    end
    set -q words[1]; or return
    string join0 -- $words
    return 0
end

function __putex_complete_command -d 'Completes that command; what begins with a hyphen is none'
    set -l words (__putex_command | string split0)
    string match -q -- '-*' $words[1]; or __fish_complete_subcommand --commandline $words
end

function __putex_word -d 'Whether the word of this number is typed'
    test (count (commandline -opc)) -eq $argv[1]
end

complete -c putex -f
complete -c putex -n '__putex_word 1' -a agent -d 'keep at most one copy of a service running (the default)'
complete -c putex -n '__putex_word 1' -a check -d 'show an agent\'s settings, and say whether they are right'
complete -c putex -n '__putex_word 1' -a finish -d 'stop the service if neither agent nor guard is there to'
complete -c putex -n '__putex_word 1' -a lock -d 'run a command while a lock is held, which no other host can have then'
complete -c putex -n '__putex_word 1' -a grab -d 'get a lock for a script, or keep it: it runs out by itself'
complete -c putex -n '__putex_word 1' -a release -d 'give back what putex grab has got, or take it away from its holder'
complete -c putex -n '__putex_word 1' -a lease -d 'claim, extend, expire and show leases, which outlive the process that claims'
complete -c putex -n '__putex_word 1' -a put -d 'write a value unless a lease has gone'
complete -c putex -n '__putex_word 1' -a status -d 'show who holds which lock or lease, since when and until when'
complete -c putex -n '__putex_word 1' -a switchover -d 'move the service to another agent, and say what became of it'
complete -c putex -n '__putex_word 1' -a pause -d 'for some time, no agent starts, stops or takes over the service'
complete -c putex -n '__putex_word 1' -a resume -d 'end a pause'
complete -c putex -n '__putex_word 1' -a doctor -d 'measure whether the servers, the agents and this host are fit'
complete -c putex -n '__putex_word 1' -a timing -d 'show what -r, -f, -c and --drift mean in seconds'
complete -c putex -n '__putex_word 1' -a help -d 'show this help, or what the manual says of a topic'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a agent -d 'putex(8): all of the agent'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a tutorial -d 'putex-tutorial(7): three hosts and a database, step by step'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a lock -d 'putex-lock(1): run a command while a lock is held'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a grab -d 'putex-grab(1): locks for scripts, that run out by themselves'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a release -d 'how such a lock is given back, or taken away'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a lease -d 'putex-lease(1): leases, which outlive what has claimed them'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a put -d 'a write that is refused unless a lease stands'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a status -d 'putex-status(1): who holds which lock or lease'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a switchover -d 'putex-switchover(1): move a service to another agent'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a pause -d 'putex-pause(1): keep all agents of a service still'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a resume -d 'how a pause is ended'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a doctor -d 'putex-doctor(1): are servers, agents and this host fit'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a theory -d 'putex(7): why at most one copy runs, and when not'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a config -d 'putex.conf(5): settings in a file'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a trouble -d 'what to do if nobody runs the service'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a check -d 'the command'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a finish -d 'the command'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a help -d 'the command'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a timing -d 'R, F, C, and the times that follow from them'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a guard -d 'what acts when an agent dies, and by when'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a commands -d 'what start, stop and health check have to do'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a managers -d 'OpenRC, runit, s6, systemd, BusyBox init'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a environment -d 'variables that are read'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a files -d 'where things are kept'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a signals -d 'how an agent is ended'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a exit -d 'what the exit status says'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a messages -d 'putex-messages(7): what the log says, and what to do'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a examples -d 'command lines for common tasks'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a tls -d 'encryption and certificates'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a bucket -d 'which buckets are refused, and rights of users'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a servers -d 'which server is tried next, and when one is left'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a record -d 'what stands under the key'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a states -d 'what an agent does when'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a seats -d 'several active agents at once, each with a lock of its own'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a fencing -d 'how to use PUTEX_TERM'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a limits -d 'what can break the promise'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a caveats -d 'what to be careful with'
complete -c putex -n '__putex_runs lease; and __putex_word 2' -a claim
complete -c putex -n '__putex_runs lease; and __putex_word 2' -a extend
complete -c putex -n '__putex_runs lease; and __putex_word 2' -a check
complete -c putex -n '__putex_runs lease; and __putex_word 2' -a expire
complete -c putex -n '__putex_runs lease; and __putex_word 2' -a list
complete -c putex -n '__putex_command >/dev/null' -a '(__putex_complete_command)'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l config -r -F -d 'file with the settings that neither options nor environment give'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l nats -x -d 'keep the lock in NATS JetStream, by these servers'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l context -x -d 'take what is not given otherwise from this context of the nats command'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l user -x -d 'log in as this user, unless a URL names one'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l password-file -r -F -d 'the user\'s password is the line of this file'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l auth-token-file -r -F -d 'log in with the token that is the line of this file'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l nkey -r -F -d 'log in with the nkey whose seed is in this file'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l creds -r -F -d 'log in with the JWT and the nkey in this file'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l tlsca -r -F -d 'who may sign a server\'s certificate'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l tlscert -r -F -d 'certificate that is shown to a server that asks'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l tlskey -r -F -d 'key of that certificate'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l tlsfirst -d 'begin with TLS before the server says anything'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l inbox-prefix -x -d 'subject below which replies are asked for'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l js-domain -x -d 'JetStream domain that the bucket is in'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l js-api-prefix -x -d 'subject below which the API of JetStream answers'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l dir -x -a '(__fish_complete_directories)' -d 'keep the lock in a directory: for this host only'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor' -l bucket -x -d 'bucket that holds the lock'
complete -c putex -n '__putex_runs agent check finish' -l key -x -d 'key that is the lock'
complete -c putex -n '__putex_runs agent check finish' -l start -x -a '(__fish_complete_command)' -d 'asserts that the service runs here'
complete -c putex -n '__putex_runs agent check finish' -l stop -x -a '(__fish_complete_command)' -d 'asserts that the service does not run here'
complete -c putex -n '__putex_runs agent check finish' -l healthcheck -x -a '(__fish_complete_command)' -d 'succeeds if the service is, or could be, fit here'
complete -c putex -n '__putex_runs agent check finish' -l priority -x -d '1 goes first to have a lock that is free, 15 last; never takes none'
complete -c putex -n '__putex_runs agent check finish' -l failback -x -d 'the service goes back to an agent of a higher priority that was fit for so long'
complete -c putex -n '__putex_runs agent check finish' -l seats -x -d 'so many agents may be active at once, each in a seat of its own'
complete -c putex -n '__putex_runs agent check finish' -l observe -d 'take no lock and run no service: only say what this agent would do'
complete -c putex -n '__putex_runs agent check finish' -l check-failures -x -d 'failing health checks in a row before the service moves'
complete -c putex -n '__putex_runs agent check finish' -l start-grace -x -d 'after the first start of a term, failing health checks only warn for so long'
complete -c putex -n '__putex_runs agent check finish' -l last-resort -x -a '(__fish_complete_command)' -d 'cuts off a service that stop could not stop in time'
complete -c putex -n '__putex_runs agent check finish' -l on-change -x -a '(__fish_complete_command)' -d 'is told each change of this agent\'s state'
complete -c putex -n '__putex_runs agent check finish' -l metrics-file -r -F -d 'keep the metrics of this agent in this file, for Prometheus'
complete -c putex -n '__putex_runs agent check finish' -l notify-fd -x -d 'descriptor that is written a line when this agent stands by'
complete -c putex -n '__putex_runs agent check finish' -l micro -d 'clients of NATS micro services, such as nats micro, find this agent'
complete -c putex -n '__putex_runs agent check finish' -l syslog -d 'log to the syslog daemon of this host instead of stderr'
complete -c putex -n '__putex_runs agent check finish lock' -l token -x -d 'who this is to the others; no two agents have one token'
complete -c putex -n '__putex_runs agent check finish doctor' -l watchdog -r -F -d 'resets this host when all else fails; with :required, no start without it'
complete -c putex -n '__putex_runs agent check finish doctor timing' -s r -l renewal -x -d 'R, from one renewal to the next: milliseconds, or with ms, s, m'
complete -c putex -n '__putex_runs agent check finish doctor timing' -s f -l failures -x -d 'F, renewals that must be missed before a takeover'
complete -c putex -n '__putex_runs agent check finish doctor timing' -s c -l confirmations -x -d 'C, renewals between a takeover and the start'
complete -c putex -n '__putex_runs lock grab' -s s -l shared -d 'others may hold the lock at the same time if they ask for it so'
complete -c putex -n '__putex_runs lock grab' -s x -l exclusive -s e -d 'nobody else may hold the lock at the same time: the default'
complete -c putex -n '__putex_runs lock grab' -s w -l timeout -l wait -x -d 'end if the lock was not had after so long: seconds, or with ms, s, m'
complete -c putex -n '__putex_runs lock grab' -s E -l conflict-exit-code -x -d 'exit status if the lock was not had'
complete -c putex -n '__putex_runs lock' -s j -l slots -x -d 'so many may hold the lock at the same time, each with a slot of its own'
complete -c putex -n '__putex_runs lock' -l soft -d 'let others go first: ask for the lock only while nobody holds it'
complete -c putex -n '__putex_runs lock' -l quiet-for -x -d 'as --soft, once nobody has held it for so long: seconds, or with ms, s, m'
complete -c putex -n '__putex_runs lock' -l hard-after -x -d 'let others go first for so long at most: seconds, or with ms, s, m'
complete -c putex -n '__putex_runs lock' -s n -l nonblock -l nb -l nonblocking -d 'end at once if the lock is not free'
complete -c putex -n '__putex_runs lock' -s k -l kill-after -x -d 'from SIGTERM to SIGKILL if the lock is lost: seconds, or with ms, s, m'
complete -c putex -n '__putex_runs lock' -l hold -x -d 'the lock is held for so long at least, also after the command'
complete -c putex -n '__putex_runs lock' -l report -r -F -d 'add a line of JSON to this file that says how it has ended'
complete -c putex -n '__putex_runs lock' -s r -l renewal -x -d 'R, from one renewal to the next: milliseconds, or with ms, s, m'
complete -c putex -n '__putex_runs lock' -s f -l failures -x -d 'F, renewals that must be missed before others get the lock'
complete -c putex -n '__putex_runs lock' -s o -l close -d 'the command does not inherit the lock of a directory, nor does what it starts'
complete -c putex -n '__putex_runs lock' -s c -l command -x -d 'behind the name: the command, as a line for $SHELL or /bin/sh'
complete -c putex -n '__putex_runs grab' -s n -l nonblock -l nb -l nonblocking -d 'keep no place in the queue if the lock is not free'
complete -c putex -n '__putex_runs grab' -l for -x -d 'the lock, or the place, runs out after so long: seconds, or with ms, s, m, h'
complete -c putex -n '__putex_runs grab release put status' -l as -x -d 'who asks: whoever asks by the same name is the same requester'
complete -c putex -n '__putex_runs release' -l force -d 'take the lock away from another holder, whom --holder names'
complete -c putex -n '__putex_runs release' -l holder -x -d 'with --force: the holder that is to lose the lock'
complete -c putex -n '__putex_runs lease' -l for -x -d 'of claim and extend: for so long at least, in seconds, or with ms, s, m, h'
complete -c putex -n '__putex_runs lease' -l as -x -d 'of claim and extend: the holder; of check: whether this one has it'
complete -c putex -n '__putex_runs lease' -s w -l timeout -l wait -x -d 'of expire: wait for so long at most until the lease has run out'
complete -c putex -n '__putex_runs timing' -l lease -x -d 'show what a lease for this time means instead: seconds, or with ms, s, m, h'
complete -c putex -n '__putex_runs status doctor' -l json -d 'print an object of JSON'
complete -c putex -n '__putex_runs status' -s e -l is -x -d 'exit with 0 for yes, 1 for no: held, free, mine, active, paused or holder=TOKEN'
complete -c putex -n '__putex_runs status' -l print -x -d 'print one value only: holder, host, state or term'
complete -c putex -n '__putex_runs status' -s W -l watch -x -d 'repeat it so often: seconds, or with ms, s, m'
complete -c putex -n '__putex_runs switchover' -l from -x -d 'the agent that gives its lock; needed if several have one'
complete -c putex -n '__putex_runs switchover' -l to -x -d 'the agent that is to have it'
complete -c putex -n '__putex_runs switchover' -s w -l timeout -l wait -x -d 'withdraw it if the holder has not begun after so long: seconds, or with ms, s, m'
complete -c putex -n '__putex_runs pause' -l for -x -d 'how long the pause lasts: seconds, or with ms, s, m, h, d'
complete -c putex -n '__putex_runs pause' -l reason -x -d 'why, for whoever sees the pause'
complete -c putex -n '__putex_runs pause resume' -s w -l timeout -l wait -x -d 'how long the agents have to acknowledge it: seconds, or with ms, s, m'
complete -c putex -n '__putex_runs doctor' -l ignore -x -d 'findings of these names do not make anything unfit'
complete -c putex -n '__putex_runs doctor' -l samples -x -d 'measure so many reads and so many writes'
complete -c putex -n '__putex_runs put' -l lease -x -d 'the lease without which nothing is written'
complete -c putex -n '__putex_runs agent check finish lock grab lease doctor timing' -l drift -x -d 'how far the rate of a host\'s clock may be off'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put' -l replicas -x -d 'servers that keep a copy of a bucket made by putex'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put' -l allow-memory -d 'accept a bucket that its server forgets when it restarts'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put switchover pause resume' -s v -l verbose -d 'say more'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put switchover pause resume' -s q -l quiet -d 'say less: -q warnings and errors, -qq errors'
complete -c putex -n '__putex_runs check' -l connect -d 'ask the servers too; nothing is written or made there'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor timing help' -s h -l help -d 'show this help'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status switchover pause resume doctor timing help' -s V -l version -d 'show the version'
