use proptest::prelude::*;

use super::*;

proptest! {
    /// For every EventIdx inside the queue: rung exactly when one of the values that are passed is EventIdx.
    #[test]
    fn rung_when_event_idx_is_passed(size in 2u16.., last in any::<u16>(), step in 1u16.., event_idx in any::<u16>()) {
        let (last, event_idx) = (last % size, event_idx % size);
        let step = 1 + (step - 1) % (size - 1);
        let value = ((u32::from(last) + u32::from(step)) % u32::from(size)) as u16;
        let behind = (u32::from(event_idx) + u32::from(size) - u32::from(last)) % u32::from(size);
        prop_assert_eq!(passes(event_idx, last, value), behind < u32::from(step));
    }
}

#[test]
fn a_controller_that_has_seen_all_is_rung_for() {
    for last in [0, 1, 1022, 1023, u16::MAX - 1] {
        assert!(passes(last, last, last + 1), "{last}");
        assert!(passes(last, last, 0) || last == 0, "{last}");
    }
    // It has seen less, so it is looking: no ring.
    assert!(!passes(3, 4, 5));
    assert!(!passes(5, 4, 5));
}
