//! Waits in closed form.

/// Probability that a job of an M/M/c queue has to wait (Erlang C): `servers` servers, `offered`
/// jobs in service on average. 1 where the servers cannot keep up.
pub fn erlang_c(servers: u32, offered: f64) -> f64 {
    if offered >= f64::from(servers) {
        return 1.0;
    }
    if offered <= 0.0 {
        return 0.0;
    }
    // Erlang B by its recurrence, which neither overflows nor cancels.
    let blocked = (1..=servers).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
    let utilisation = offered / f64::from(servers);
    blocked / (1.0 - utilisation + utilisation * blocked)
}

/// A station of a queue in equilibrium. Times are seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// Arrivals a second.
    pub arrival_rate: f64,
    /// Mean service time.
    pub service: f64,
    /// Squared coefficient of variation of the gaps between arrivals.
    pub gap_variation: f64,
    /// Squared coefficient of variation of the service times.
    pub service_variation: f64,
    /// Number of servers.
    pub servers: u32,
}

impl Station {
    /// Share of the time for which each server is busy; 1 and above is more than they can serve.
    pub fn utilisation(&self) -> f64 {
        self.arrival_rate * self.service / f64::from(self.servers)
    }

    /// Mean wait by the approximation of Allen and Cunneen (Allen, *Probability, Statistics, and
    /// Queueing Theory*, 1990): the wait of M/M/c times the mean of both variations. Exact for M/M/c
    /// and M/G/1. Infinite where the servers cannot keep up.
    pub fn allen_cunneen(&self) -> f64 {
        let utilisation = self.utilisation();
        if utilisation >= 1.0 {
            return f64::INFINITY;
        }
        let offered = utilisation * f64::from(self.servers);
        let markovian = erlang_c(self.servers, offered) * self.service
            / (f64::from(self.servers) * (1.0 - utilisation));
        markovian * (self.gap_variation + self.service_variation) / 2.0
    }
}

/// The squared coefficient of variation of the service times of an M/G/1 queue, from the mean
/// `service` time, the `utilisation` and the variance of its `busy_variance` periods (Takács 1962;
/// Kleinrock, *Queueing Systems*, vol. 1, 1975, section 5.8): the variance of a busy period is
/// `(σ² + ρ·s²) / (1 − ρ)³`.
pub fn service_variation_of_busy_periods(
    service: f64,
    utilisation: f64,
    busy_variance: f64,
) -> f64 {
    let free = (1.0 - utilisation).max(0.0);
    (busy_variance * free.powi(3) / (service * service) - utilisation).max(0.0)
}
