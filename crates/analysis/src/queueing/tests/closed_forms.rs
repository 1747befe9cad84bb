//! Formulas, simulation and mean value analysis against known queues.

use proptest::prelude::*;

use super::super::formulas::{Station, erlang_c, service_variation_of_busy_periods};
use super::super::mva::{self, Network};
use super::super::random::Random;
use super::super::simulate::{Servers, simulate};
use super::{SHAPES, Shape, near};

fn simulated(shape: Shape, servers: u32, utilisation: f64) -> f64 {
    let mut random = Random::new(7);
    let gap = 1.0 / (utilisation * f64::from(servers));
    let next = || (random.exponential(gap), shape.draw(&mut random));
    simulate(servers, 400_000, next).mean
}

#[test]
fn shapes_have_their_moments() {
    for shape in SHAPES {
        let mut random = Random::new(3);
        let all: Vec<f64> = (0..200_000).map(|_| shape.draw(&mut random)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let squares = all.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / all.len() as f64;
        near("mean", mean, 1.0, 0.02);
        assert!(
            (squares - shape.variation()).abs() < 0.12,
            "{shape:?}: {squares}"
        );
    }
}

#[test]
fn erlang_c_has_its_known_values() {
    // One server: the probability to wait is the utilisation.
    near("1 server", erlang_c(1, 0.3), 0.3, 1e-12);
    // Two servers: a² / (a² + (2 − a)(1 + a)); five servers from tables.
    near(
        "2 servers",
        erlang_c(2, 1.5),
        2.25 / (2.25 + 0.5 * 2.5),
        1e-12,
    );
    near("5 servers", erlang_c(5, 4.0), 0.5541, 1e-3);
    assert_eq!((erlang_c(3, 3.0), erlang_c(3, 0.0)), (1.0, 0.0));
}

#[test]
fn one_server_waits_as_pollaczek_and_khinchine_say() {
    for shape in SHAPES {
        for utilisation in [0.3, 0.7] {
            let truth = utilisation / (1.0 - utilisation) * (1.0 + shape.variation()) / 2.0;
            let station = Station {
                arrival_rate: utilisation,
                service: 1.0,
                gap_variation: 1.0,
                service_variation: shape.variation(),
                servers: 1,
            };
            near("formula", station.allen_cunneen(), truth, 1e-9);
            near("simulation", simulated(shape, 1, utilisation), truth, 0.06);
        }
    }
}

#[test]
fn several_servers_wait_as_erlang_says() {
    for servers in [2, 4] {
        let station = Station {
            arrival_rate: 0.8 * f64::from(servers),
            service: 1.0,
            gap_variation: 1.0,
            service_variation: 1.0,
            servers,
        };
        let truth = erlang_c(servers, station.arrival_rate) / (f64::from(servers) * 0.2);
        near("formula", station.allen_cunneen(), truth, 1e-9);
        near(
            "simulation",
            simulated(Shape::Exponential, servers, 0.8),
            truth,
            0.06,
        );
    }
}

#[test]
fn more_than_can_be_served_waits_without_end() {
    let station = Station {
        arrival_rate: 2.0,
        service: 1.0,
        gap_variation: 1.0,
        service_variation: 1.0,
        servers: 2,
    };
    assert_eq!(station.allen_cunneen(), f64::INFINITY);
}

#[test]
fn busy_periods_tell_the_variation_of_service() {
    for shape in SHAPES {
        // Busy periods of a simulated queue at utilisation 0.5.
        let (mut random, mut station) = (Random::new(11), Servers::new(1));
        let (mut periods, mut busy) = (Vec::new(), 0.0);
        for _ in 0..400_000 {
            let service = shape.draw(&mut random);
            if station.arrive(random.exponential(2.0), service) == 0.0 && busy > 0.0 {
                periods.push(busy);
                busy = 0.0;
            }
            busy += service;
        }
        let n = periods.len() as f64;
        let mean = periods.iter().sum::<f64>() / n;
        near("mean", mean, 2.0, 0.03);
        let variance = periods.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / n;
        let got = service_variation_of_busy_periods(1.0, 0.5, variance);
        let off = (got - shape.variation()).abs();
        assert!(off < 0.1 + 0.15 * shape.variation(), "{shape:?}: {got}");
    }
}

fn station(service: f64, servers: u32) -> mva::Station {
    mva::Station {
        service,
        variation: 1.0,
        servers,
    }
}

/// The machine repairman: N customers that think exponentially and c servers, by its balance
/// equations. Returns throughput and mean wait.
fn repairman(customers: u32, think: f64, servers: u32) -> (f64, f64) {
    let mut p = vec![1.0];
    for n in 1..=customers {
        let arrive = f64::from(customers + 1 - n) / think;
        let serve = f64::from(n.min(servers));
        p.push(p[n as usize - 1] * arrive / serve);
    }
    let all: f64 = p.iter().sum();
    let mean = |of: &dyn Fn(u32) -> f64| -> f64 {
        (0u32..).zip(&p).map(|(n, p)| of(n) * p).sum::<f64>() / all
    };
    let throughput = mean(&|n| f64::from(n.min(servers)));
    let waiting = mean(&|n| f64::from(n.saturating_sub(servers)));
    (throughput, waiting / throughput)
}

#[test]
fn closed_networks_agree_with_balance_equations() {
    for (customers, think, servers) in [
        (1, 5.0, 1),
        (8, 9.0, 1),
        (20, 3.0, 1),
        (12, 4.0, 3),
        (9, 1.0, 4),
    ] {
        let network = Network {
            think,
            stations: vec![station(1.0, servers)],
        };
        let solved = network.solve(f64::from(customers));
        let (throughput, wait) = repairman(customers, think, servers);
        near("throughput", solved.throughput, throughput, 1e-6);
        assert!((solved.stations[0].wait - wait).abs() < 1e-6, "{solved:?}");
    }
}

#[test]
fn the_textbook_network_of_three_stations() {
    // A central server network in balance: with equal demands d at three stations and no think
    // time, X(N) = N / (d·(N + 2)).
    let network = Network {
        think: 0.0,
        stations: vec![station(0.4, 1); 3],
    };
    for n in 1..=6u32 {
        let n = f64::from(n);
        near(
            "throughput",
            network.solve(n).throughput,
            n / (0.4 * (n + 2.0)),
            1e-9,
        );
    }
}

proptest! {
    #[test]
    fn solutions_obey_littles_law_and_the_servers(
        customers in 1u32..60, think in 0.0f64..20.0, servers in 1u32..5, service in 0.01f64..3.0,
        variation in 0.0f64..6.0,
    ) {
        let network = Network {
            think,
            stations: vec![mva::Station { service, variation, servers }],
        };
        let s = network.solve(f64::from(customers));
        let at = &s.stations[0];
        let cycle = think + at.wait + service;
        prop_assert!((s.throughput * cycle / f64::from(customers) - 1.0).abs() < 1e-9);
        prop_assert!(at.wait >= 0.0 && at.utilisation <= 1.0);
        // Exact for variation 1; the correction for others is an approximation.
        let exponential = Network {
            think,
            stations: vec![mva::Station { service, variation: 1.0, servers }],
        };
        let s = exponential.solve(f64::from(customers));
        let more = exponential.solve(f64::from(customers) + 0.5);
        prop_assert!(more.throughput >= s.throughput * (1.0 - 1e-9));
        prop_assert!(s.throughput <= f64::from(servers) / service * (1.0 + 1e-9));
    }
}
