//! What each request of a bench is.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tentpeg_engine::OpCode;

use super::Pattern;
use super::plan::Plan;
use crate::rotation::Rotation;

/// Requests without end. The same plan gives the same ones.
#[derive(Clone, Debug)]
pub struct Workload {
    rng: Xoshiro256PlusPlus,
    pattern: Pattern,
    read_percent: u8,
    block: u64,
    capacities: Vec<u64>,
    /// Places for a request; the last one of each device may be a part of a block.
    rotation: Rotation,
    next: u64,
}

/// One request, without its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which way the bytes go.
    pub opcode: OpCode,
    /// Which of the devices.
    pub target: usize,
    /// Where, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

impl Workload {
    /// The requests of `plan`: a sequence goes to each device in turn. What is left at a device's end and less than a block is used
    /// in sequence only.
    pub fn new(plan: &Plan) -> Self {
        let places = |capacity: &u64| match plan.pattern {
            Pattern::Random => capacity / plan.block,
            Pattern::Sequential => capacity.div_ceil(plan.block),
        };
        Self {
            rng: Xoshiro256PlusPlus::seed_from_u64(plan.seed),
            pattern: plan.pattern,
            read_percent: plan.read_percent,
            block: plan.block,
            capacities: plan.capacities.clone(),
            rotation: Rotation::new(&plan.capacities.iter().map(places).collect::<Vec<_>>()),
            next: 0,
        }
    }

    /// The next one.
    #[inline]
    pub fn next_transfer(&mut self) -> Transfer {
        let place = match self.pattern {
            Pattern::Random => self.below(self.rotation.places()),
            Pattern::Sequential => {
                let place = self.next;
                self.next = if place + 1 == self.rotation.places() { 0 } else { place + 1 };
                place
            }
        };
        let reads = match self.read_percent {
            0 => false,
            100 => true,
            percent => self.below(100) < u64::from(percent),
        };
        let opcode = if reads { OpCode::Read } else { OpCode::Write };
        let (target, place) = self.rotation.place(place);
        let offset = place * self.block;
        Transfer { opcode, target, offset, length: self.block.min(self.capacities[target] - offset) }
    }

    /// A number below `bound`, each equally likely (to within `bound` in 2^64).
    #[inline]
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}
