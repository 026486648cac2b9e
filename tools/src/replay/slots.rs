//! Where slots lie: on one segment, or on several in turn.

use tentpeg_engine::{Segment, SegmentId};

use super::geometry::Geometry;
use crate::rotation::Rotation;

/// The place of each slot.
#[derive(Clone, Debug)]
pub struct Slots {
    segments: Vec<SegmentId>,
    rotation: Rotation,
    block: u64,
}

impl Slots {
    /// Slots in `segments`, one or more, which have room for some of them each.
    pub fn of<'a>(segments: impl IntoIterator<Item = &'a Segment>, geometry: &Geometry) -> Self {
        let block = geometry.block();
        let (segments, blocks): (Vec<_>, Vec<_>) =
            segments.into_iter().map(|segment| (segment.id, segment.capacity / block)).unzip();
        Self { segments, rotation: Rotation::new(&blocks), block }
    }

    /// The segment of a slot, and where it begins there, in bytes. One that there is no room for lies behind the end of the
    /// first segment, where the engine refuses it.
    pub fn place(&self, slot: u32) -> (SegmentId, u64) {
        let slot = u64::from(slot);
        let (segment, place) = if slot < self.rotation.places() { self.rotation.place(slot) } else { (0, slot) };
        (self.segments[segment], place * self.block)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use tentpeg_engine::{ByteSize, Engine, OpenOptions};

    use super::*;

    #[test]
    fn slots_lie_on_each_segment_in_turn() {
        let uris = ["model:size=20KiB", "model:size=32KiB"];
        let (engine, _) = Engine::open_devices(uris, OpenOptions::default()).unwrap();
        let one = NonZeroU32::MIN;
        let geometry = Geometry::new(one, one, ByteSize(8 << 10), ByteSize(4 << 10)).unwrap();
        let [first, second] = [0, 1].map(|segment: usize| engine.segments()[segment].id);
        let slots = Slots::of(engine.segments(), &geometry);
        let places: Vec<_> = (0..6).map(|slot| slots.place(slot)).collect();
        let right = [(first, 0), (second, 0), (first, 8192), (second, 8192), (second, 16_384), (second, 24_576)];
        assert_eq!(places, right);
        assert_eq!(slots.place(6), (first, 6 * 8192), "there is no such place");
    }
}
