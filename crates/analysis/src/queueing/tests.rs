//! The mathematics against closed forms, and the intervals against simulated truth.

mod closed_forms;
mod coverage;
mod scaling;

use super::random::Random;

/// Service-time distributions with mean 1.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Constant,
    /// Three exponential phases: variation 1/3.
    Erlang,
    Exponential,
    /// Two exponentials with balanced means: variation 4.
    Hyperexponential,
}

const SHAPES: [Shape; 4] = [
    Shape::Constant,
    Shape::Erlang,
    Shape::Exponential,
    Shape::Hyperexponential,
];

impl Shape {
    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Shape::Constant => 1.0,
            Shape::Erlang => (0..3).map(|_| random.exponential(1.0 / 3.0)).sum(),
            Shape::Exponential => random.exponential(1.0),
            Shape::Hyperexponential => {
                let often = (1.0 + (3.0f64 / 5.0).sqrt()) / 2.0;
                match random.unit() < often {
                    true => random.exponential(0.5 / often),
                    false => random.exponential(0.5 / (1.0 - often)),
                }
            }
        }
    }

    fn variation(self) -> f64 {
        match self {
            Shape::Constant => 0.0,
            Shape::Erlang => 1.0 / 3.0,
            Shape::Exponential => 1.0,
            Shape::Hyperexponential => 4.0,
        }
    }
}

#[track_caller]
fn near(what: &str, value: f64, truth: f64, relative: f64) {
    let off = (value / truth - 1.0).abs();
    assert!(off <= relative, "{what}: {value} for {truth}");
}
