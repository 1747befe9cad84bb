//! Events that wake the loop of a recorder: one epoll set over clocks, rings, targets and signals.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{
        EventfdFlags,
        epoll::{self, EventData, EventFlags},
        eventfd,
    },
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec},
};

use crate::Error;
use crate::clock::unix_now;

/// Reason for a wake-up of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The end of a time slice.
    Tick,
    /// A ring has something.
    News,
    /// The timer of [`Events::wake_every`] expired: a ring that wakes no thread may have something.
    Clock,
    /// A snapshot of the session is due.
    Snapshot,
    /// The asked duration is over.
    Duration,
    /// All targets have ended.
    TargetEnded,
    /// SIGINT, SIGTERM, SIGHUP, SIGQUIT, or a [`Control`].
    Signal,
}

const TICK: u64 = 1;
const NEWS: u64 = 3;
const DURATION: u64 = 4;
const SIGNAL: u64 = 5;
const WAKE: u64 = 6;
const SNAPSHOT: u64 = 7;
const TARGET: u64 = 16;

/// Controls a session from another thread; without effect on one that is over.
#[derive(Clone, Debug)]
pub struct Control {
    stop: Arc<OwnedFd>,
    snapshot: Arc<OwnedFd>,
}

impl Control {
    /// Ends it, as Ctrl-C does.
    pub fn stop(&self) {
        // The write fails only if the counter is full, and then the end has been requested already.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
    }

    /// Closes the open window of a session in windows ([`Options::windows`](super::Options)); the next one ends at a
    /// multiple of their length again.
    pub fn close_window(&self) {
        // The kernel takes every time of a clock that exists.
        let _ = set(&self.snapshot, Timespec::default(), timespec(1), false);
    }
}

/// The epoll set and the descriptors that it owns.
pub struct Events {
    epoll: OwnedFd,
    tick: OwnedFd,
    duration: OwnedFd,
    snapshot: Arc<OwnedFd>,
    signals: Signals,
    /// Interval at which the loop wakes up without an event, ns, and the timer for it.
    wake: Option<(u64, OwnedFd)>,
    stop: Arc<OwnedFd>,
    targets: Vec<OwnedFd>,
    alive: usize,
    ends_with_targets: bool,
}

impl Events {
    /// Watches `targets` (process descriptors), the duration and the signals that end a recording.
    /// From here on those signals do not kill this process any more.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new(targets: &[OwnedFd], duration: Option<Duration>) -> Result<Events, Error> {
        Self::build(targets, duration).map_err(|e| Error::io("cannot set up the wait loop", e))
    }

    fn build(targets: &[OwnedFd], duration: Option<Duration>) -> io::Result<Events> {
        let timer = || {
            rustix::time::timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )
        };
        let events = Events {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            tick: timer()?,
            duration: timer()?,
            snapshot: Arc::new(timer()?),
            signals: Signals::hold()?,
            wake: None,
            stop: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            targets: targets
                .iter()
                .map(OwnedFd::try_clone)
                .collect::<Result<_, _>>()?,
            alive: targets.len(),
            ends_with_targets: !targets.is_empty(),
        };
        for (fd, data) in [
            (&events.tick, TICK),
            (&events.duration, DURATION),
            (&*events.snapshot, SNAPSHOT),
            (&events.signals.0, SIGNAL),
            (&*events.stop, SIGNAL),
        ] {
            events.add(fd.as_fd(), data)?;
        }
        for (index, fd) in events.targets.iter().enumerate() {
            events.add(fd.as_fd(), TARGET + index as u64)?;
        }
        events.set_duration(duration)?;
        Ok(events)
    }

    fn set_duration(&self, duration: Option<Duration>) -> io::Result<()> {
        let Some(d) = duration else { return Ok(()) };
        let length = timespec(d.as_nanos() as u64);
        set(&self.duration, Timespec::default(), length, false)
    }

    /// The duration begins now.
    ///
    /// # Errors
    /// The clock refuses, which it has no reason to.
    pub fn lasts(&self, duration: Option<Duration>) -> Result<(), Error> {
        (self.set_duration(duration)).map_err(|e| Error::io("cannot set the duration", e))
    }

    fn add(&self, fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            fd,
            EventData::new_u64(data),
            EventFlags::IN,
        )?)
    }

    /// Also wakes up for a ring of mapping records.
    ///
    /// # Errors
    /// Out of memory.
    pub fn sideband(&self, fd: &OwnedFd) -> Result<(), Error> {
        self.add(fd.as_fd(), NEWS)
            .map_err(|e| Error::io("cannot watch for new mappings", e))
    }

    /// Wakes up for a ring, which is one of `sideband`, from now on.
    ///
    /// # Errors
    /// It did already.
    pub fn listen(&self, fd: &OwnedFd) -> io::Result<()> {
        self.add(fd.as_fd(), NEWS)
    }

    /// Does not wake up for a ring, which is one of `sideband`, from now on.
    ///
    /// # Errors
    /// It did not before.
    pub fn ignore(&self, fd: &OwnedFd) -> io::Result<()> {
        // Asking for no events is not enough: the kernel wakes us for a ring whatever events were asked for.
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Also wakes up for the event ring.
    ///
    /// # Errors
    /// Out of memory.
    pub fn ring(&self, fd: i32) -> Result<(), Error> {
        // SAFETY: the ring, which owns the descriptor, lives as long as the loop runs.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        self.add(fd, NEWS)
            .map_err(|e| Error::io("cannot watch the event ring", e))
    }

    /// Also wakes up each `width_ns`, or more often if that was asked for before. Some rings and files wake no
    /// thread, and some work is due although nothing has happened.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn wake_every(&mut self, width_ns: u64) -> Result<(), Error> {
        if self
            .wake
            .as_ref()
            .is_some_and(|(every, _)| *every <= width_ns)
        {
            return Ok(());
        }
        let refused = |e: io::Error| Error::io("cannot set the clock of news", e);
        let timer = rustix::time::timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        );
        let timer = timer.map_err(|e| refused(e.into()))?;
        set(&timer, timespec(width_ns), timespec(width_ns), false).map_err(refused)?;
        self.add(timer.as_fd(), WAKE).map_err(refused)?;
        self.wake = Some((width_ns, timer));
        Ok(())
    }

    /// Ticks at `start_ns + k · width_ns` of CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// The clock refuses, which it has no reason to.
    pub fn tick_every(&self, start_ns: u64, width_ns: u64) -> Result<(), Error> {
        set(
            &self.tick,
            timespec(width_ns),
            timespec(start_ns + width_ns),
            true,
        )
        .map_err(|e| Error::io("cannot set the slice clock", e))
    }

    /// Control of the session from elsewhere.
    pub fn control(&self) -> Control {
        Control {
            stop: Arc::clone(&self.stop),
            snapshot: Arc::clone(&self.snapshot),
        }
    }

    /// Asks for a snapshot each `every`, from now on.
    ///
    /// # Errors
    /// The clock refuses, which it has no reason to.
    pub fn snapshot_every(&self, every: Duration) -> Result<(), Error> {
        let every = timespec(every.as_nanos() as u64);
        set(&self.snapshot, every, every, false)
            .map_err(|e| Error::io("cannot set the clock of snapshots", e))
    }

    /// Asks for a snapshot at each multiple of `every` of the wall clock.
    ///
    /// # Errors
    /// The clock refuses, which it has no reason to.
    pub fn snapshot_at_multiples(&self, every: Duration) -> Result<(), Error> {
        let length = every.as_nanos() as u64;
        let first = length - unix_now() % length;
        set(&self.snapshot, timespec(length), timespec(first), false)
            .map_err(|e| Error::io("cannot set the clock of windows", e))
    }

    /// Ends the loop and returns the signals that end a recording. They do not end this process while the value
    /// lives.
    pub fn into_signals(self) -> Signals {
        self.signals
    }

    /// Waits for the next event.
    pub fn wait(&mut self) -> Event {
        self.wait_for(None)
    }

    /// Waits for the next event. Returns [`Event::News`] if none came within `longest`.
    pub fn wait_for(&mut self, longest: Option<Duration>) -> Event {
        let longest = longest.map(|d| timespec(d.as_nanos() as u64));
        loop {
            let mut buffer = [epoll::Event {
                flags: EventFlags::empty(),
                data: EventData::new_u64(0),
            }; 1];
            let Ok(n) = epoll::wait(&self.epoll, &mut buffer[..], longest.as_ref()) else {
                continue;
            };
            if n == 0 {
                return Event::News;
            }
            let data = buffer[0].data.u64();
            match data {
                TICK => {
                    drain(&self.tick);
                    return Event::Tick;
                }
                SNAPSHOT => {
                    drain(&self.snapshot);
                    return Event::Snapshot;
                }
                DURATION => return Event::Duration,
                SIGNAL => return Event::Signal,
                NEWS => return Event::News,
                WAKE => {
                    if let Some((_, timer)) = &self.wake {
                        drain(timer);
                    }
                    return Event::Clock;
                }
                target => {
                    if let Some(fd) = self.targets.get((target - TARGET) as usize) {
                        let _ = epoll::delete(&self.epoll, fd);
                        self.alive -= 1;
                    }
                    if self.alive == 0 && self.ends_with_targets {
                        return Event::TargetEnded;
                    }
                }
            }
        }
    }
}

fn drain(fd: &OwnedFd) {
    let mut count = [0u8; 8];
    let _ = rustix::io::read(fd, &mut count);
}

fn set(fd: &OwnedFd, every: Timespec, first: Timespec, absolute: bool) -> io::Result<()> {
    let flags = if absolute {
        TimerfdTimerFlags::ABSTIME
    } else {
        TimerfdTimerFlags::empty()
    };
    let value = Itimerspec {
        it_interval: every,
        it_value: first,
    };
    rustix::time::timerfd_settime(fd, flags, &value)?;
    Ok(())
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// Holds back the signals that end a recording: they do not end this process while the value lives. Dropping it
/// unblocks them and discards those that came meanwhile, as the recording has ended.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    fn hold() -> io::Result<Signals> {
        // SAFETY: the set is initialised before anything reads it; the calls keep no pointer to it.
        unsafe {
            let set = ending();
            if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(Signals(OwnedFd::from_raw_fd(fd)))
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let mut info = [0u8; 128];
        // SAFETY: the buffer is as long as the call is told; the set is initialised.
        unsafe {
            while libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), info.len()) > 0 {}
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &ending(), std::ptr::null_mut());
        }
    }
}

/// The signals that end a recording.
fn ending() -> libc::sigset_t {
    // SAFETY: a set is plain data, which sigemptyset initialises.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}
