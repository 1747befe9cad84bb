//! The G/G/c queue in the order of arrival, job by job (Lindley 1952; Kiefer and Wolfowitz 1955).

use super::random::Random;

/// A recorded or simulated job. Times are seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Job {
    /// Time since the arrival of the job before it.
    pub gap: f64,
    /// Time for which a server works on it.
    pub service: f64,
    /// Time from its arrival until its service begins.
    pub wait: f64,
}

/// Servers, and the moments at which they will be free.
#[derive(Clone, Debug)]
pub struct Servers {
    now: f64,
    /// When each is free.
    free: Vec<f64>,
}

impl Servers {
    /// `count` free servers, at least one.
    pub fn new(count: u32) -> Servers {
        Servers {
            now: 0.0,
            free: vec![0.0; count.max(1) as usize],
        }
    }

    /// Lets a job arrive `gap` after the last one, to be served for `service`; returns its wait.
    pub fn arrive(&mut self, gap: f64, service: f64) -> f64 {
        self.now += gap;
        let mut first = 0;
        for i in 1..self.free.len() {
            if self.free[i] < self.free[first] {
                first = i;
            }
        }
        let begin = self.free[first].max(self.now);
        self.free[first] = begin + service;
        begin - self.now
    }
}

/// A mean of simulated waits, and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulated {
    /// Mean wait, s.
    pub mean: f64,
    /// Standard error of the mean from batches of consecutive jobs, s.
    pub error: f64,
}

/// Batches for the standard error of a simulation.
const BATCHES: usize = 20;

/// Simulates `count` jobs that `next` makes (gap and service), after a tenth as many that are not
/// counted.
pub fn simulate(servers: u32, count: usize, mut next: impl FnMut() -> (f64, f64)) -> Simulated {
    let mut station = Servers::new(servers);
    let mut arrive = || {
        let (gap, service) = next();
        station.arrive(gap, service)
    };
    for _ in 0..count / 10 {
        arrive();
    }
    let batch = (count / BATCHES).max(1);
    let means: Vec<f64> = (0..BATCHES)
        .map(|_| (0..batch).map(|_| arrive()).sum::<f64>() / batch as f64)
        .collect();
    let mean = means.iter().sum::<f64>() / BATCHES as f64;
    let squares: f64 = means.iter().map(|m| (m - mean).powi(2)).sum();
    Simulated {
        mean,
        error: (squares / (BATCHES * (BATCHES - 1)) as f64).sqrt(),
    }
}

/// Lengths of stretches that are tested for correlation, in jobs; the longest is the square root of the number of
/// jobs.
const STRETCHES: [usize; 3] = [2, 8, 32];
/// Correlation counts if the variance of a stretch's work differs from that of independent jobs by so
/// many standard errors: one of four tests fails by chance in fewer than 1 % of recordings.
const SIGNIFICANT: f64 = 3.0;

/// Draws recorded jobs again: one by one if they are independent, else in stretches of consecutive
/// jobs, so that bursts stay bursts (moving block bootstrap; Künsch 1989).
///
/// Stretches of independent jobs would only add the noise of the recording's own chance bursts.
pub struct Resampled<'a> {
    jobs: &'a [Job],
    stretch: usize,
    at: usize,
    left: usize,
}

impl<'a> Resampled<'a> {
    /// Draws from `jobs`, which are not empty.
    pub fn new(jobs: &'a [Job]) -> Resampled<'a> {
        let longest = (jobs.len() as f64).sqrt().ceil() as usize;
        let correlated = (STRETCHES.into_iter().filter(|l| *l < longest))
            .chain([longest])
            .any(|length| is_correlated(jobs, length));
        Resampled {
            jobs,
            stretch: if correlated { longest } else { 1 },
            at: 0,
            left: 0,
        }
    }

    /// Relative standard error of the wait that comes from the stretches: the variance of the work in
    /// a stretch is known from as many stretches as there are, and the wait is proportional to it.
    pub fn error(&self) -> f64 {
        match self.stretch {
            1 => 0.0,
            stretch => (2.0 * stretch as f64 / self.jobs.len() as f64).sqrt(),
        }
    }

    /// The next job.
    pub fn draw(&mut self, random: &mut Random) -> Job {
        if self.left == 0 {
            self.at = random.below(self.jobs.len());
            self.left = self.stretch;
        }
        let job = self.jobs[self.at];
        self.at = (self.at + 1) % self.jobs.len();
        self.left -= 1;
        job
    }
}

/// Whether the work that comes in (service less gap) varies over stretches of `length` jobs otherwise
/// than independent jobs would.
fn is_correlated(jobs: &[Job], length: usize) -> bool {
    let n = jobs.len() as f64;
    let mean = jobs.iter().map(|j| j.service - j.gap).sum::<f64>() / n;
    let work = |j: &Job| j.service - j.gap - mean;
    let single = jobs.iter().map(|j| work(j).powi(2)).sum::<f64>() / n;
    let stretches = jobs.chunks_exact(length);
    let count = stretches.len() as f64;
    let sums = stretches.map(|s| s.iter().map(work).sum::<f64>().powi(2));
    let together = sums.sum::<f64>() / count / length as f64;
    // The fourth moment of single jobs matters where stretches are short.
    let fourth = jobs.iter().map(|j| work(j).powi(4)).sum::<f64>() / n;
    let excess = (fourth / single.powi(2) - 3.0).max(0.0) / length as f64;
    let error = ((2.0 + excess) / count).sqrt();
    single > 0.0 && (together / single - 1.0).abs() > SIGNIFICANT * error
}
