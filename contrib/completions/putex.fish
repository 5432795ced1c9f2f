# fish completion of putex: /usr/share/fish/vendor_completions.d/putex.fish
# Made from the table of the program, src/cli/table.rs, by
# PUTEX_REWRITE=1 cargo test --test command_line

function __putex_runs -d 'Whether the command is one of these'
    set -l words (commandline -opc)
    set -l verb agent
    if contains -- "$words[2]" agent check finish timing lock grab release lease put status doctor init switchover pause resume help
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
        if contains -- $word --config --nats --context --user --password-file --auth-token-file --nkey --creds --tlsca --tlscert --tlskey --inbox-prefix --js-domain --js-api-prefix --dir --bucket --replicas --token --slots --quiet-for --hard-after --conflict-exit-code --timeout --wait --kill-after --hold --report --renewal --failures --command --drift
            or string match -rq -- '^-[^-jEwkrfc]*[jEwkrfc]$' $word
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
complete -c putex -n '__putex_word 1' -a agent -d 'keep at most one copy of a service running over several hosts'
complete -c putex -n '__putex_word 1' -a check -d 'show the settings of an agent, and what is wrong with them'
complete -c putex -n '__putex_word 1' -a finish -d 'stop the service that an agent and its guard have left running'
complete -c putex -n '__putex_word 1' -a timing -d 'show what -r, -f, -c and --drift mean in seconds'
complete -c putex -n '__putex_word 1' -a lock -d 'run a command while a lock is held; end it if the lock is lost'
complete -c putex -n '__putex_word 1' -a grab -d 'take a lock for a script, or keep it; it runs out by itself'
complete -c putex -n '__putex_word 1' -a release -d 'give back a lock of putex grab, or take it from its holder'
complete -c putex -n '__putex_word 1' -a lease -d 'claim, extend, check, expire and list leases'
complete -c putex -n '__putex_word 1' -a put -d 'write a value unless a lease has gone'
complete -c putex -n '__putex_word 1' -a status -d 'show who holds which lock or lease, since when and until when'
complete -c putex -n '__putex_word 1' -a doctor -d 'measure whether the servers, the agents and this host are fit'
complete -c putex -n '__putex_word 1' -a init -d 'make the bucket, so that the first lock and lease do not wait'
complete -c putex -n '__putex_word 1' -a switchover -d 'move the service to another agent, and say what became of it'
complete -c putex -n '__putex_word 1' -a pause -d 'for some time, agents leave the service alone'
complete -c putex -n '__putex_word 1' -a resume -d 'end a pause'
complete -c putex -n '__putex_word 1' -a help -d 'show the commands, or what the manual says of a topic'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a agent -d 'all of the agent'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a check -d 'what check looks at'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a finish -d 'what finish does'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a timing -d 'R, F, C, and the times that follow from them'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a lock -d 'run a command while a lock is held'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a grab -d 'grab and release, locks for scripts'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a lease -d 'leases, and put'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a status -d 'who holds which lock or lease'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a switchover -d 'move a service to another agent'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a pause -d 'pause and resume'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a doctor -d 'are servers, agents and this host fit'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a store -d 'servers, logins, TLS, directories'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a config -d 'settings in a file'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a examples -d 'command lines for common tasks'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a trouble -d 'what to do if nobody runs the service'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a messages -d 'what the log says, and what to do'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a commands -d 'what start, stop and health check have to do'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a managers -d 'OpenRC, runit, s6, systemd, BusyBox init'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a theory -d 'why at most one copy runs, and when not'
complete -c putex -n '__putex_runs help; and __putex_word 2' -a limits -d 'what can break the promise'
complete -c putex -n '__putex_runs lease; and __putex_word 2' -a claim
complete -c putex -n '__putex_runs lease; and __putex_word 2' -a extend
complete -c putex -n '__putex_runs lease; and __putex_word 2' -a check
complete -c putex -n '__putex_runs lease; and __putex_word 2' -a expire
complete -c putex -n '__putex_runs lease; and __putex_word 2' -a list
complete -c putex -n '__putex_command >/dev/null' -a '(__putex_complete_command)'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l config -r -F -d 'settings that neither options nor environment give'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l nats -x -d 'keep the lock in NATS JetStream, by these servers'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l context -x -d 'take what is missing from this context of the nats command'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l user -x -d 'log in as this user, unless a URL names one'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l password-file -r -F -d 'the user\'s password is the line of this file'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l auth-token-file -r -F -d 'log in with the token that is the line of this file'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l nkey -r -F -d 'log in with the nkey whose seed is in this file'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l creds -r -F -d 'log in with the JWT and the nkey in this file'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l tlsca -r -F -d 'authorities that may sign a server\'s certificate'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l tlscert -r -F -d 'certificate for a server that asks for one'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l tlskey -r -F -d 'key of that certificate'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l tlsfirst -d 'begin with TLS before the server says anything'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l inbox-prefix -x -d 'subject below which replies arrive'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l js-domain -x -d 'JetStream domain that the bucket is in'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l js-api-prefix -x -d 'subject below which the API of JetStream answers'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l dir -x -a '(__fish_complete_directories)' -d 'keep the lock in a directory: for this host only'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put status doctor init switchover pause resume' -l bucket -x -d 'bucket that holds the lock'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put init' -l replicas -x -d 'copies of a bucket that putex creates'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put init' -l allow-memory -d 'accept a bucket in memory, which a restart of its server loses'
complete -c putex -n '__putex_runs agent check finish' -l key -x -d 'key that is the lock'
complete -c putex -n '__putex_runs agent check finish' -l start -x -a '(__fish_complete_command)' -d 'ensures that the service runs here, and ends'
complete -c putex -n '__putex_runs agent check finish' -l stop -x -a '(__fish_complete_command)' -d 'ensures that the service does not run here'
complete -c putex -n '__putex_runs agent check finish' -l healthcheck -x -a '(__fish_complete_command)' -d 'succeeds if the service is, or could be, fit here'
complete -c putex -n '__putex_runs agent check finish' -l priority -x -d '1 takes a free lock first, 15 last; never takes none'
complete -c putex -n '__putex_runs agent check finish' -l failback -x -d 'give the service back to an agent of a better priority that was fit for so long'
complete -c putex -n '__putex_runs agent check finish' -l seats -x -d 'how many agents may be active at once'
complete -c putex -n '__putex_runs agent check finish' -l agents -x -d 'how many agents of this key there are to be: status and doctor warn of fewer'
complete -c putex -n '__putex_runs agent check finish' -l observe -d 'take no lock and run no service; only log what this agent would do'
complete -c putex -n '__putex_runs agent check finish' -l check-failures -x -d 'failing health checks in a row before the service moves'
complete -c putex -n '__putex_runs agent check finish' -l start-grace -x -d 'for so long after the first start, failing health checks only warn'
complete -c putex -n '__putex_runs agent check finish' -l last-resort -x -a '(__fish_complete_command)' -d 'cuts off a service that stop could not stop in time'
complete -c putex -n '__putex_runs agent check finish' -l on-change -x -a '(__fish_complete_command)' -d 'is run at each change of this agent\'s state'
complete -c putex -n '__putex_runs agent check finish' -l metrics-file -r -F -d 'keep the metrics of this agent in this file, for Prometheus'
complete -c putex -n '__putex_runs agent check finish' -l notify-fd -x -d 'write a line to this descriptor when this agent stands by'
complete -c putex -n '__putex_runs agent check finish' -l syslog -d 'log to syslog instead of stderr'
complete -c putex -n '__putex_runs agent check finish lock' -l token -x -d 'name of this agent or holder; no two have the same'
complete -c putex -n '__putex_runs agent check finish doctor' -l watchdog -r -F -d 'resets this host when agent and guard are gone; DEVICE:required: no start without it'
complete -c putex -n '__putex_runs agent check finish timing doctor' -s r -l renewal -x -d 'R, from one renewal to the next, as in 3s or 500ms'
complete -c putex -n '__putex_runs agent check finish timing doctor' -s f -l failures -x -d 'F, renewals that must be missed before a takeover'
complete -c putex -n '__putex_runs agent check finish timing doctor' -s c -l confirmations -x -d 'C, renewals between a takeover and the start'
complete -c putex -n '__putex_runs lock grab' -s s -l shared -d 'others with -s may hold the lock at the same time'
complete -c putex -n '__putex_runs lock grab' -s x -l exclusive -s e -d 'nobody else may hold the lock at the same time (the default)'
complete -c putex -n '__putex_runs lock grab' -s n -l nonblock -l nb -l nonblocking -d 'end at once if the lock is not free'
complete -c putex -n '__putex_runs lock grab' -s E -l conflict-exit-code -x -d 'exit status if the lock was not acquired'
complete -c putex -n '__putex_runs lock' -s j -l slots -x -d 'how many may hold the lock at the same time, each with a slot of its own'
complete -c putex -n '__putex_runs lock' -l soft -d 'let others go first: ask only while nobody holds the lock'
complete -c putex -n '__putex_runs lock' -l quiet-for -x -d 'as --soft, once nobody has held the lock for so long'
complete -c putex -n '__putex_runs lock' -l hard-after -x -d 'let others go first for so long at most'
complete -c putex -n '__putex_runs lock' -s k -l kill-after -x -d 'from SIGTERM to SIGKILL when the lock is lost'
complete -c putex -n '__putex_runs lock' -l hold -x -d 'hold the lock for so long at least, also after the command'
complete -c putex -n '__putex_runs lock' -l report -r -F -d 'append a line of JSON that says how the command ended'
complete -c putex -n '__putex_runs lock' -s r -l renewal -x -d 'R, from one renewal to the next, as in 3s or 500ms'
complete -c putex -n '__putex_runs lock' -s f -l failures -x -d 'F, renewals that must be missed before others get the lock'
complete -c putex -n '__putex_runs lock' -s o -l close -d 'the command does not inherit the lock of a directory, nor does what it starts'
complete -c putex -n '__putex_runs lock' -s c -l command -x -d 'after NAME: the command, as a line for $SHELL or /bin/sh'
complete -c putex -n '__putex_runs lock grab lease' -s w -l timeout -l wait -x -d 'wait for so long at most; a number is seconds'
complete -c putex -n '__putex_runs grab' -l for -x -d 'the lock, or the place in the queue, runs out after so long'
complete -c putex -n '__putex_runs grab release lease put status' -l as -x -d 'name of the requester; the same name is the same requester'
complete -c putex -n '__putex_runs release' -l force -d 'take the lock away from the holder that --holder names'
complete -c putex -n '__putex_runs release' -l holder -x -d 'with --force: the holder that loses the lock'
complete -c putex -n '__putex_runs lease' -l for -x -d 'claim, extend: for so long at least'
complete -c putex -n '__putex_runs status doctor' -l json -d 'print an object of JSON'
complete -c putex -n '__putex_runs status' -s e -l is -x -d 'exit with 0 for yes, 1 for no: held, free, mine, active, paused or holder=TOKEN'
complete -c putex -n '__putex_runs status' -l print -x -d 'print one value only: holder, host or term'
complete -c putex -n '__putex_runs switchover' -l from -x -d 'agent that gives its lock up; needed if several have one'
complete -c putex -n '__putex_runs switchover' -l to -x -d 'agent that the service moves to'
complete -c putex -n '__putex_runs switchover' -s w -l timeout -l wait -x -d 'withdraw it if the holder has not begun after so long'
complete -c putex -n '__putex_runs pause' -l for -x -d 'how long the pause lasts, as in 2h'
complete -c putex -n '__putex_runs pause' -l reason -x -d 'why, for whoever sees the pause'
complete -c putex -n '__putex_runs pause resume' -s w -l timeout -l wait -x -d 'how long the agents have to acknowledge it'
complete -c putex -n '__putex_runs doctor' -l ignore -x -d 'findings that do not make anything unfit'
complete -c putex -n '__putex_runs doctor' -l strict -d 'exit with 1 if there is a warning, as a plugin of Nagios does'
complete -c putex -n '__putex_runs doctor' -l samples -x -d 'how many reads and writes are measured'
complete -c putex -n '__putex_runs put' -l lease -x -d 'lease without which nothing is written'
complete -c putex -n '__putex_runs agent check finish timing lock grab lease doctor' -l drift -x -d 'how far the rate of a host\'s clock may be off'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put switchover pause resume' -s v -l verbose -d 'say more'
complete -c putex -n '__putex_runs agent check finish lock grab release lease put switchover pause resume' -s q -l quiet -d 'say less: -q warnings and errors, -qq errors'
complete -c putex -n '__putex_runs check' -l connect -d 'ask the servers too; nothing is written or created there'
complete -c putex -n '__putex_runs agent check finish timing lock grab release lease put status doctor init switchover pause resume help' -s h -l help -d 'show this help'
complete -c putex -n '__putex_runs agent check finish timing lock grab release lease put status doctor init switchover pause resume help' -s V -l version -d 'show the version'
