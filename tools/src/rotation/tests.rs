use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[test]
fn members_take_turns_and_the_larger_one_has_what_is_left() {
    let rotation = Rotation::new(&[2, 0, 4, 2]);
    let places: Vec<_> = (0..rotation.places()).map(|number| rotation.place(number)).collect();
    assert_eq!(places, [(0, 0), (2, 0), (3, 0), (0, 1), (2, 1), (3, 1), (2, 2), (2, 3)]);
    let one = Rotation::new(&[u64::MAX]);
    assert_eq!((one.places(), one.place(u64::MAX - 1)), (u64::MAX, (0, u64::MAX - 1)));
    assert_eq!((Rotation::new(&[]).places(), Rotation::new(&[0, 0]).places()), (0, 0));
}

proptest! {
    #[test]
    fn each_place_has_one_number(places in prop::collection::vec(0u64..40, 0..8)) {
        let rotation = Rotation::new(&places);
        prop_assert_eq!(rotation.places(), places.iter().sum::<u64>());
        let found: Vec<_> = (0..rotation.places()).map(|number| rotation.place(number)).collect();
        prop_assert!(found.iter().all(|(member, place)| *place < places[*member]));
        prop_assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len());
        // As even as can be: no member is two places ahead of one that has room.
        let mut next = vec![0; places.len()];
        for (member, place) in found {
            prop_assert_eq!(place, next[member]);
            let least = (0..places.len()).filter(|other| next[*other] < places[*other]).map(|other| next[other]).min();
            prop_assert_eq!(least, Some(place));
            next[member] += 1;
        }
    }
}
