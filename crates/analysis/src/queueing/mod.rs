//! Queueing theory: arrivals and service times → waits, and waits under more load.
//!
//! Pure mathematics on values in seconds. Nothing here knows recordings or threads.
//!
//! * [`formulas`]: Erlang C and the approximation of Allen and Cunneen.
//! * [`simulate`]: the G/G/c queue, job by job.
//! * [`mva`]: mean value analysis of closed networks.
//! * [`usl`]: the universal scalability law.
//! * [`bootstrap`]: intervals from blocks of time.
//! * [`predict`]: all of these put together: the wait at the recorded load and above it.
//!
//! The random numbers are seeded, so one recording always gives one answer.

pub mod bootstrap;
pub mod formulas;
pub mod mva;
pub mod predict;
pub mod random;
pub mod simulate;
pub mod usl;

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end; infinite where a queue may grow without bound.
    pub high: f64,
}

impl Estimate {
    /// A value without uncertainty.
    pub fn exact(value: f64) -> Estimate {
        Estimate {
            value,
            low: value,
            high: value,
        }
    }

    /// All three numbers multiplied by `factor`, which is not negative.
    pub fn times(self, factor: f64) -> Estimate {
        Estimate {
            value: self.value * factor,
            low: self.low * factor,
            high: self.high * factor,
        }
    }

    /// The larger distance of an end from the value, relative to the value.
    pub fn relative_error(&self) -> f64 {
        let distance = (self.high - self.value).max(self.value - self.low);
        distance / self.value
    }
}

/// Sums over a part of a recording, from which rates and moments follow. Times are seconds.
///
/// Sums of parts add, so that a resampled set of blocks has moments too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// Length of the part.
    pub span: f64,
    /// Jobs that arrived.
    pub jobs: f64,
    /// Sum of their service times.
    pub service: f64,
    /// Sum of the squares of their service times.
    pub service_squares: f64,
    /// Sum of their waits before service.
    pub wait: f64,
    /// Sum of the gaps before their arrivals.
    pub gap: f64,
    /// Sum of the squares of these gaps.
    pub gap_squares: f64,
}

impl Moments {
    /// Adds the sums of another part.
    pub fn add(&mut self, other: &Moments) {
        self.span += other.span;
        self.jobs += other.jobs;
        self.service += other.service;
        self.service_squares += other.service_squares;
        self.wait += other.wait;
        self.gap += other.gap;
        self.gap_squares += other.gap_squares;
    }

    /// The sums of all `parts`.
    pub fn total(parts: &[Moments]) -> Moments {
        let mut sum = Moments::default();
        parts.iter().for_each(|part| sum.add(part));
        sum
    }

    /// Arrivals a second.
    pub fn arrival_rate(&self) -> f64 {
        self.jobs / self.span
    }

    /// Mean service time.
    pub fn mean_service(&self) -> f64 {
        self.service / self.jobs
    }

    /// Mean wait before service.
    pub fn mean_wait(&self) -> f64 {
        self.wait / self.jobs
    }

    /// Squared coefficient of variation of the service times.
    pub fn service_variation(&self) -> f64 {
        variation(self.service, self.service_squares, self.jobs)
    }

    /// Squared coefficient of variation of the gaps between arrivals.
    pub fn gap_variation(&self) -> f64 {
        variation(self.gap, self.gap_squares, self.jobs)
    }

    /// Share of the time for which each of `servers` is busy.
    pub fn utilisation(&self, servers: u32) -> f64 {
        self.service / (self.span * f64::from(servers))
    }
}

/// Squared coefficient of variation of `count` values with this sum and this sum of squares.
fn variation(sum: f64, squares: f64, count: f64) -> f64 {
    (squares * count / (sum * sum) - 1.0).max(0.0)
}

/// How a station with several jobs shares its servers out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// In the order of arrival, each job to its end.
    Fifo,
    /// In turns, so that a long job does not hold up a short one. The mean wait then depends on the
    /// mean service time alone (insensitivity of processor sharing; Kleinrock, *Queueing Systems*,
    /// vol. 2, 1976, chapter 4).
    Shared,
}

impl Discipline {
    /// The variation of service times that matters for the wait.
    pub fn effective_variation(self, variation: f64) -> f64 {
        match self {
            Discipline::Fifo => variation,
            Discipline::Shared => 1.0,
        }
    }
}

#[cfg(test)]
mod tests;
