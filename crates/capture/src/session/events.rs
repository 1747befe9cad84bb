//! What the wait loop wakes up for: one epoll set over clocks, rings, targets and signals.

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

/// Why the loop woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The end of a time slice.
    Tick,
    /// A ring has something.
    News,
    /// It may have, by the clock: see [`Events::look_every`].
    Clock,
    /// Somebody wants to look at what was measured so far.
    Look,
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
const LOOK: u64 = 6;
const VIEW: u64 = 7;
const TARGET: u64 = 16;

/// Controls a session from another thread; without effect on one that is over.
#[derive(Clone, Debug)]
pub struct Control {
    stop: Arc<OwnedFd>,
    view: Arc<OwnedFd>,
}

impl Control {
    /// Ends it, as Ctrl-C does.
    pub fn stop(&self) {
        // A counter that is full has been told already.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
    }

    /// Closes the open window of a session in windows ([`Options::windows`](super::Options)); the next one ends at a
    /// multiple of their length again.
    pub fn close_window(&self) {
        // The kernel takes every time of a clock that exists.
        let _ = set(&self.view, Timespec::default(), timespec(1), false);
    }
}

/// The epoll set and the descriptors that it owns.
pub struct Events {
    epoll: OwnedFd,
    tick: OwnedFd,
    duration: OwnedFd,
    view: Arc<OwnedFd>,
    signals: Signals,
    /// What tells of news by the clock, and how often, ns.
    look: Option<(u64, OwnedFd)>,
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
            view: Arc::new(timer()?),
            signals: Signals::hold()?,
            look: None,
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
            (&*events.view, VIEW),
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
        // To ask for no events would not do: the kernel wakes us for a ring whatever was asked for.
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

    /// Also wakes up each `width_ns`, or oftener if that was asked for: for rings and files that wake nobody, and for
    /// what has to be done without anything having happened.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn look_every(&mut self, width_ns: u64) -> Result<(), Error> {
        if self
            .look
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
        self.add(timer.as_fd(), LOOK).map_err(refused)?;
        self.look = Some((width_ns, timer));
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
            view: Arc::clone(&self.view),
        }
    }

    /// Asks for a look each `every`, from now on.
    ///
    /// # Errors
    /// The clock refuses, which it has no reason to.
    pub fn view_every(&self, every: Duration) -> Result<(), Error> {
        let every = timespec(every.as_nanos() as u64);
        set(&self.view, every, every, false)
            .map_err(|e| Error::io("cannot set the clock of looks", e))
    }

    /// Asks for a look each `every`, at multiples of it of the wall clock.
    ///
    /// # Errors
    /// The clock refuses, which it has no reason to.
    pub fn view_at_multiples(&self, every: Duration) -> Result<(), Error> {
        let length = every.as_nanos() as u64;
        let first = length - unix_now() % length;
        set(&self.view, timespec(length), timespec(first), false)
            .map_err(|e| Error::io("cannot set the clock of windows", e))
    }

    /// Keeps the signals that end a recording from ending this process, now that nobody waits.
    pub fn into_signals(self) -> Signals {
        self.signals
    }

    /// Waits for the next event.
    pub fn wait(&mut self) -> Event {
        self.wait_for(None)
    }

    /// Waits for the next event: news, whether there are any or not, if nothing came for so long.
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
                VIEW => {
                    drain(&self.view);
                    return Event::Look;
                }
                DURATION => return Event::Duration,
                SIGNAL => return Event::Signal,
                NEWS => return Event::News,
                LOOK => {
                    if let Some((_, look)) = &self.look {
                        drain(look);
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

/// The signals that end a recording, which do not end this process while this lives. Dropped, it lets
/// them again, and forgets those that came meanwhile: what they asked for was done.
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

/// The set of these signals.
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
