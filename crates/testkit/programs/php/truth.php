<?php
// SPDX-License-Identifier: MIT OR Apache-2.0
// A PHP program that measures its own functions by the clock, in the way of the C programs.
//
// truth.php [--seconds S]   computes, sleeps, is called back from C, recurses, yields
// truth.php --units N       a fixed amount of computing; tells its time
//
// Says READY and its process, waits for a line, works, tells its truth, stays until stdin ends.
// Runs on PHP 7.3 and later.

function option($name, $otherwise)
{
    global $argv;
    $at = array_search("--$name", $argv, true);
    return $at === false ? $otherwise : (float) $argv[$at + 1];
}

/** CPU time of this thread, ns. */
function computed()
{
    $used = getrusage();
    return ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']) * 1000000000
        + ($used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec']) * 1000;
}

/** Its time in the run queue, ns. */
function queued()
{
    return (int) explode(' ', file_get_contents('/proc/self/schedstat'))[1];
}

/** Both. */
function books()
{
    return [computed(), queued()];
}

$functions = [];
$chains = [];
$operations = 0;

function measure($function, $reason)
{
    global $functions;
    $delay = queued();
    // Wall time innermost, and no file read between two clocks: each is a system call.
    $cpu = computed();
    $wall = hrtime(true);
    $function();
    $wall = hrtime(true) - $wall;
    $after = books();
    if (!isset($functions[$function])) {
        $functions[$function] = [$reason, 0, 0, 0, 0];
    }
    $truth = &$functions[$function];
    $truth[1] += 1;
    $truth[2] += $wall;
    $truth[3] += $after[0] - $cpu;
    $truth[4] += $after[1] - $delay;
}

/** Records the caller's stack, once for each function. */
function chain($state)
{
    global $chains;
    $names = [];
    foreach (array_slice(debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS), 1) as $call) {
        $names[] = isset($call['class']) ? "{$call['class']}::{$call['function']}" : $call['function'];
    }
    if (!isset($chains[$names[0]])) {
        $chains[$names[0]] = [$state, array_merge($names, ['<main>'])];
    }
}

function spin($turns)
{
    $x = 1;
    for ($i = 0; $i < $turns; $i++) {
        $x = ($x * 31 + $i) & 0xffffff;
    }
    return $x;
}

function calibrate()
{
    $best = INF;
    for ($i = 0; $i < 10; $i++) {
        $began = hrtime(true);
        spin(20000);
        $best = min($best, hrtime(true) - $began);
    }
    return 20000 / ($best / 1000);
}

/** About `us` of computing, never the same. */
function some($us)
{
    global $turns;
    return (int) ($us * mt_rand(500, 1500) / 1000 * $turns);
}

function php_heavy()
{
    $x = 1;
    for ($i = 0, $n = some(6000); $i < $n; $i++) {
        $x = ($x * 31 + $i) & 0xffffff;
    }
    return $x;
}

function php_light()
{
    spin(some(2000));
}

function php_nap()
{
    usleep(mt_rand(2000, 6000));
}

function php_key($a, $b)
{
    chain('on_cpu');
    spin(some(60));
    return $a <=> $b;
}

/** A function called by C code called by a function. */
function php_sort()
{
    $list = range(1, 12);
    shuffle($list);
    usort($list, 'php_key');
}

function php_numbers()
{
    for ($i = 0; $i < 10; $i++) {
        chain('on_cpu');
        yield spin(some(150));
    }
}

function php_generate()
{
    return array_sum(iterator_to_array(php_numbers(), false));
}

class Well
{
    public static function bottom()
    {
        chain('blocked');
        usleep(mt_rand(1000, 3000));
    }

    public function dive($depth)
    {
        return $depth ? $this->dive($depth - 1) : self::bottom();
    }
}

function php_dive()
{
    (new Well())->dive(40);
}

function php_fiber()
{
    $fiber = new Fiber(function () {
        Fiber::suspend();
        spin(some(2000));
    });
    $fiber->start();
    $fiber->resume();
}

function work()
{
    measure('php_heavy', '');
    measure('php_light', '');
    measure('php_nap', 'timer');
    measure('php_sort', '');
    measure('php_generate', '');
    measure('php_dive', 'timer');
    if (class_exists('Fiber')) {
        measure('php_fiber', '');
    }
}

$pid = getmypid();
$turns = calibrate();
$began = hrtime(true);
echo "READY $pid\n";
fgets(STDIN);
$released = hrtime(true);
$before = books();
$extra = new stdClass();
if ($units = option('units', 0)) {
    for ($i = 0; $i < $units; $i++) {
        spin(10000);
    }
    $extra->wall_ns = hrtime(true) - $released;
    $extra->cpu_ns = books()[0] - $before[0];
} else {
    $end = $released + (int) (option('seconds', 3) * 1e9);
    while (hrtime(true) < $end) {
        work();
        $operations++;
    }
}
$after = books();
$ended = hrtime(true);
$all = [];
foreach ($functions as $name => $t) {
    $all[] = ['pid' => $pid, 'tid' => $pid, 'name' => $name, 'reason' => $t[0], 'calls' => $t[1],
        'wall_ns' => $t[2], 'on_cpu_ns' => $t[3], 'run_delay_ns' => $t[4]];
}
$seen = [];
foreach ($chains as $leaf => $chain) {
    $frames = [];
    foreach ($chain[1] as $name) {
        $frames[] = ['name' => $name, 'module' => 'truth.php', 'offset' => 0];
    }
    $seen[] = ['pid' => $pid, 'tid' => $pid, 'leaf' => $leaf, 'state' => $chain[0], 'frames' => $frames];
}
$thread = ['pid' => $pid, 'tid' => $pid, 'name' => trim(file_get_contents('/proc/self/comm')),
    'start_ns' => $began, 'end_ns' => 0, 'work_wall_ns' => $ended - $released,
    'on_cpu_ns' => $after[0] - $before[0], 'run_delay_ns' => $after[1] - $before[1],
    'voluntary_switches' => 0, 'involuntary_switches' => 0, 'operations' => $operations, 'finished' => true];
echo json_encode(['program' => 'php', 'executable' => basename(PHP_BINARY), 'pid' => $pid,
    'released_ns' => $released, 'ended_ns' => $ended, 'threads' => [$thread], 'functions' => $all,
    'chains' => $seen, 'extra' => $extra]), "\n";
fgets(STDIN);
