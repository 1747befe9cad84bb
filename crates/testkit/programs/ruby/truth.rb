# SPDX-License-Identifier: MIT OR Apache-2.0
# A Ruby program that measures its own methods by the clock, in the way of the C programs.
#
# truth.rb [--seconds S]   computes, sleeps, is called back from C, recurses, raises, in a thread and in fibers too
# truth.rb --gil [...]     two threads compute all the time, each for as long as Ruby's lock lets it
# truth.rb --units N       a fixed amount of computing; tells its time
#
# Says READY and its process, waits for a line, works, tells its truth, stays until stdin ends.
# Runs on Ruby 2.7 and later, also without its library.

def option(name, otherwise)
  at = ARGV.index("--#{name}")
  at ? ARGV[at + 1].to_f : otherwise
end

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
end

# CPU time of this thread, ns.
def computed
  Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID, :nanosecond)
end

# Its time in the run queue, ns.
def queued
  File.read('/proc/thread-self/schedstat').split[1].to_i
end

# Both.
def books
  [computed, queued]
end

def json(value)
  case value
  when Hash then '{' + value.map { |k, v| "#{k.to_s.inspect}: #{json(v)}" }.join(', ') + '}'
  when Array then '[' + value.map { |v| json(v) }.join(', ') + ']'
  when String then value.inspect
  else value.to_s
  end
end

# What one thread has measured.
class Worker
  attr_reader :tid, :functions, :chains
  attr_accessor :operations, :since, :extra

  def initialize
    @tid = File.readlink('/proc/thread-self').split('/').last.to_i
    @functions = {}
    @chains = {}
    @operations = 0
    @start = now
    @name = File.read('/proc/thread-self/comm').chomp
  end

  def begin_work
    @since = now
    @before = books
  end

  def end_work
    after = books
    ended = now
    @thread = { pid: $$, tid: @tid, name: @name, start_ns: @start, end_ns: 0, work_wall_ns: ended - @since,
                on_cpu_ns: after[0] - @before[0], run_delay_ns: after[1] - @before[1],
                voluntary_switches: 0, involuntary_switches: 0, operations: @operations, finished: true }
    ended
  end

  def thread
    @thread
  end

  def measure(function, reason)
    delay = queued
    # Wall time innermost, and no file read between two clocks: each is a system call.
    cpu = computed
    wall = now
    send(function)
    wall = now - wall
    after = books
    truth = @functions[function] ||= [reason, 0, 0, 0, 0]
    truth[1] += 1
    truth[2] += wall
    truth[3] += after[0] - cpu
    truth[4] += after[1] - delay
  end

  # Records the caller's stack, once for each function.
  def chain(state)
    names = caller_locations.map { |l| l.label.sub(/\A(block (?:\(\d+ levels\) )?in |)[A-Z][\w:]*[#.]/, '\1') }
    @chains[names[0]] ||= [state, names]
  end

  def spin(turns)
    x = 1
    i = 0
    while i < turns
      x = (x * 31 + i) & 0xffffff
      i += 1
    end
    x
  end

  # About `us` of computing, never the same.
  def some(us)
    (us * (500 + rand(1001)) / 1000.0 * $turns).to_i
  end

  def ruby_heavy
    x = 1
    i = 0
    n = some(6000)
    while i < n
      x = (x * 31 + i) & 0xffffff
      i += 1
    end
    x
  end

  def ruby_light
    spin(some(2000))
  end

  def ruby_nap
    sleep((2 + 4 * rand) / 1000)
  end

  # A block called by C code called by a method.
  def ruby_sort
    (1..12).to_a.shuffle.sort_by do |x|
      chain('on_cpu')
      spin(some(100))
      -x
    end
  end

  # Blocks in blocks, and `yield`.
  def ruby_each
    [1, 2, 3].each do |x|
      twice { spin(some(200) + x) }
    end
  end

  def twice
    yield
    yield
  end

  # A method written in C, for long.
  def ruby_power
    3**(60_000 + rand(60_000))
  end

  def ruby_raise
    begin
      fall(20)
    rescue ArgumentError
      spin(some(500))
    end
  end

  def fall(depth)
    raise ArgumentError, 'the bottom' if depth.zero?

    fall(depth - 1)
  end

  def ruby_dive
    dive(40)
  end

  def dive(depth)
    return dive(depth - 1) unless depth.zero?

    bottom
  end

  def bottom
    chain('blocked')
    sleep((1 + 2 * rand) / 1000)
  end

  # Fibers have stacks of their own.
  def ruby_fiber
    fiber = Fiber.new do
      Fiber.yield
      measure(:ruby_fibered, '')
    end
    fiber.resume
    fiber.resume
  end

  def ruby_fibered
    spin(some(1500))
  end

  def ruby_wait
    sleep((5 + 10 * rand) / 1000)
  end

  def ruby_aside
    spin(some(300))
  end

  def work
    measure(:ruby_heavy, '')
    measure(:ruby_light, '')
    measure(:ruby_nap, 'timer')
    measure(:ruby_sort, '')
    measure(:ruby_each, '')
    measure(:ruby_power, '')
    measure(:ruby_raise, '')
    measure(:ruby_dive, 'timer')
    ruby_fiber
  end

  def work_aside
    measure(:ruby_wait, 'timer')
    measure(:ruby_aside, '')
  end

  def count
    measure(:ruby_count, '')
  end

  def ruby_count
    spin(some(2000))
  end

  def told_functions
    @functions.map do |name, t|
      { pid: $$, tid: @tid, name: "Worker##{name}", reason: t[0], calls: t[1], wall_ns: t[2], on_cpu_ns: t[3],
        run_delay_ns: t[4] }
    end
  end

  def told_chains
    @chains.map do |leaf, (state, names)|
      { pid: $$, tid: @tid, leaf: leaf, state: state,
        frames: names.map { |n| { name: n, module: 'truth.rb', offset: 0 } } }
    end
  end
end

def calibrate(worker)
  best = (1..10).map do
    began = now
    worker.spin(20_000)
    now - began
  end.min
  20_000 / (best / 1000.0)
end

STDOUT.sync = true
main = Worker.new
$turns = calibrate(main)
units = option('units', 0)
seconds = option('seconds', 3)
workers = [main]
finish = nil
go = Queue.new
ready = Queue.new
counting = ARGV.include?('--gil')
names = if !units.zero? then {}
        elsif counting then { 'count-1' => :count, 'count-2' => :count }
        else { 'aside' => :work_aside }
        end
threads = names.map do |name, what|
  Thread.new do
    Thread.current.name = name
    worker = Worker.new
    ready << worker
    go.pop
    worker.begin_work
    while now < finish
      worker.send(what)
      worker.operations += 1
    end
    worker.end_work
  end
end
threads.each { workers << ready.pop }
puts "READY #{$$}"
STDIN.gets
released = now
extra = {}
finish = released + (seconds * 1e9).to_i
main.begin_work
if units.zero?
  threads.each { go << true }
  threads.each(&:join) if counting
  while now < finish
    main.work
    main.operations += 1
  end
else
  before = books
  units.to_i.times { main.spin(10_000) }
  extra = { wall_ns: now - released, cpu_ns: books[0] - before[0] }
end
ended = main.end_work
threads.each(&:join)
puts json(program: 'ruby', executable: File.basename(File.readlink('/proc/self/exe')), pid: $$,
          released_ns: released, ended_ns: ended, threads: workers.map(&:thread),
          functions: workers.flat_map(&:told_functions), chains: workers.flat_map(&:told_chains), extra: extra)
STDIN.gets
