#!/bin/sh
# Runs in the system that `cargo xtask verify --dist --boot` has booted, beside the agent that systemd started. Each
# step is a line on the console; the outside counts them.
unit=wallscope-agent
store=/var/lib/wallscope
say() { echo "STEP: $*" >/dev/console; }
step() {
    name=$1
    shift
    if "$@" >/tmp/said 2>&1; then
        say "ok     $name"
    else
        say "FAILED $name"
        { cat /tmp/said; journalctl --no-pager -n 20 -u $unit; } >/dev/console 2>&1
    fi
}
# The emulator is slow: each wait has ten minutes.
until_true() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || return 1
        sleep 1
    done
}
main_pid() { systemctl show -P MainPID $unit; }
is_active() { systemctl -q is-active $unit; }
said() { journalctl -q --no-pager -u $unit | grep -q "$1"; }
names() { ls $store | grep 'pb.gz$'; }
has_windows() { [ "$(names | wc -l)" -ge "$1" ]; }
more_windows() {
    wanted=$(($(names | wc -l) + $1))
    until_true has_windows $wanted
}

reload() {
    before=$(main_pid)
    systemctl reload $unit && until_true said 'was read again' && is_active && [ "$(main_pid)" = "$before" ]
}
is_another() { is_active && [ "$(main_pid)" != "$1" ] && [ "$(main_pid)" != 0 ]; }
killed() {
    before=$(main_pid)
    kill -9 "$before" && until_true is_another "$before" && [ "$(systemctl show -P NRestarts $unit)" = 1 ]
}
# Numbers of windows of one start of the agent have no gap, and none is there twice. Names are
# BEGIN+LENGTH_HOST_BOOT_EPOCH_NUMBER.pb.gz.
in_order() {
    names | sed 's/.*_\([0-9a-f]*\)_\([0-9]*\)\.pb\.gz$/\1 \2/' | sort -k1,1 -k2,2n | awk '
        $1 == epoch && $2 != number + 1 { print "after " number " comes " $2; wrong = 1 }
        { epoch = $1; number = $2 }
        END { exit wrong }'
}
# The lengths of the windows of the last start, and how long it has run, differ by two windows at most.
lengths_add_up() {
    begun=$(($(systemctl show -P ActiveEnterTimestampMonotonic $unit) / 1000000))
    now=$(cut -d. -f1 /proc/uptime)
    epoch=$(names | sed 's/.*_\([0-9a-f]*\)_[0-9]*\.pb\.gz$/\1/' | sort | tail -n 1)
    sum=$(names | grep "_${epoch}_" | sed 's/.*+\([0-9.]*\)s_.*/\1/' | awk '{ sum += $1 } END { print int(sum) }')
    echo "windows of $sum s in $((now - begun)) s"
    # Both clocks stand while the machine sleeps; the uptime goes on.
    lost=$((now - begun - sum - $1))
    [ $lost -ge -25 ] && [ $lost -le 25 ]
}
clock() { date -s "@$(($(date +%s) + $1))" && more_windows 2 && is_active; }
# To memory: in this emulator the clock's alarm does not end the lighter sleep.
sleeps() {
    echo deep >/sys/power/mem_sleep && rtcwake -m mem -s 20 && more_windows 2 && is_active
}
stops() { systemctl stop $unit && [ "$(systemctl show -P Result $unit)" = success ]; }

step "systemd starts the agent at boot" until_true is_active
step "reload keeps the process" reload
step "the agent writes windows" more_windows 2
step "it is started again after kill -9" killed
step "windows go on" more_windows 2
step "the clock steps by an hour: windows go on" clock 3600
step "and back" clock -3600
step "the machine sleeps and wakes: windows go on" sleeps
step "no window is missing or there twice" in_order
step "windows add up to the time that the agent has run" lengths_add_up 20
step "it stops in order" stops
step "its windows are a report" wallscope report $store --from -1d --until now
say end
systemctl poweroff --force
