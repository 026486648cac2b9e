//! How often what happened.

use std::fmt;

macro_rules! kinds {
    ( $( $name:ident, $text:literal; )+ ) => {
        /// A kind of fault, as it is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind {
            $( #[doc = concat!("Counted as \"", $text, "\".")] $name, )+
        }

        impl Kind {
            /// All kinds.
            pub const ALL: [Self; [$( $text ),+].len()] = [ $( Self::$name ),+ ];

            /// Its name in tables.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => $text, )+ }
            }
        }
    };
}

kinds! {
    Status, "status";
    Answer, "answer without execution";
    Delay, "delay";
    Drop, "drop";
    Duplicate, "duplicate completion";
    UnknownCid, "unknown CID";
    OutOfRangeCid, "out-of-range CID";
    BadSqhd, "bad SQHD";
    StalePhase, "stale phase";
    Torn, "torn data";
    Misplaced, "misplaced data";
    IommuFault, "IOMMU fault";
    EndlessList, "endless namespace list";
    Garbage, "garbage page";
    Fatal, "fatal status";
    SelfReset, "reset by itself";
    FatalAtEnable, "fatal status at enable";
    FatalAtDisable, "fatal status at disable";
    AllOnes, "removal, all ones";
    AllZeroes, "removal, all zeroes";
    NeverReady, "RDY never sets";
    NeverUnready, "RDY never clears";
    EarlyUnready, "RDY = 0 with DMA going on";
    ResetFails, "reset fails";
    ResetLost, "reset does not come back";
    LostRead, "bus mastering read lost";
    DeadAdmin, "dead admin queue";
}

/// How often each kind of fault has happened: counted when it took hold, not when it was armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultCounters(pub(super) [u64; Kind::ALL.len()]);

impl FaultCounters {
    /// How often `kind` has happened.
    pub fn get(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// All kinds with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, u64)> {
        Kind::ALL.into_iter().zip(self.0)
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl fmt::Display for FaultCounters {
    /// A line a kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(kind, count)| writeln!(f, "{count:>10}  {}", kind.name()))
    }
}

/// What DMA met that went on after its end: after RDY = 0, or after the drive was pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LateDma {
    /// Commands whose memory was still mapped as it had been: kept for them, as it should be.
    pub held: u64,
    /// Accesses to what was not mapped any more: the IOMMU refused them, and nobody was harmed.
    pub unmapped: u64,
    /// Accesses to what had been mapped since for something else. A real device would have reached it; the model
    /// keeps from it. A driver that is right causes none.
    pub foreign: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_place_and_a_name_of_its_own() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert!(Kind::ALL[..index].iter().all(|other| other.name() != kind.name()));
        }
        let mut counters = FaultCounters([0; Kind::ALL.len()]);
        counters.0[Kind::Drop as usize] = 3;
        assert_eq!((counters.get(Kind::Drop), counters.get(Kind::Delay), counters.total()), (3, 0, 3));
        assert!(counters.to_string().contains("         3  drop\n"));
    }
}
