//! Places of several members, numbered so that neighbours lie on different members as long as there are several with room.
//!
//! Place 0 is the first member's first one, place 1 the second member's, and so on in turn; a member that is full is left
//! out from there on. Each place of each member has one number.

/// A numbering of all places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// In the order of their numbers; one at least, unless there is no place.
    zones: Vec<Zone>,
    places: u64,
}

/// Rows that have a place of each of the same members.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Zone {
    /// The number of its first place.
    first: u64,
    /// Its first row: the place within each member.
    row: u64,
    members: Vec<usize>,
}

impl Rotation {
    /// The numbering of so many places of each member: together no more than a number of 64 bits counts.
    pub fn new(places: &[u64]) -> Self {
        let mut rows: Vec<u64> = places.iter().copied().filter(|rows| *rows > 0).collect();
        rows.sort_unstable();
        rows.dedup();
        let (mut zones, mut first, mut row) = (Vec::with_capacity(rows.len()), 0u64, 0);
        for end in rows {
            let members: Vec<usize> = (0..places.len()).filter(|member| places[*member] >= end).collect();
            let count = (end - row).saturating_mul(members.len() as u64);
            zones.push(Zone { first, row, members });
            (first, row) = (first.saturating_add(count), end);
        }
        Self { zones, places: first }
    }

    /// How many places there are.
    pub fn places(&self) -> u64 {
        self.places
    }

    /// The member and the place within it that have this number, which is below [`places`](Self::places).
    #[inline]
    pub fn place(&self, number: u64) -> (usize, u64) {
        // The first zone begins at 0.
        let zone = &self.zones[self.zones.partition_point(|zone| zone.first <= number) - 1];
        let place = number - zone.first;
        match zone.members[..] {
            // Without a division, for the one device of most runs.
            [only] => (only, zone.row + place),
            ref members => {
                let count = members.len() as u64;
                (members[(place % count) as usize], zone.row + place / count)
            }
        }
    }
}

#[cfg(test)]
mod tests;
