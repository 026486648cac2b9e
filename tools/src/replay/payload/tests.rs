use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn any_payload() -> impl Strategy<Value = Payload> {
    (any::<u64>(), 1u64..1 << 63).prop_map(|(block, write)| Payload::new(block, write))
}

fn filled(payload: &Payload, first: u64, length: usize) -> Vec<u64> {
    let mut words = vec![0; length];
    payload.fill(first, &mut words);
    words
}

fn mismatch(payload: &Payload, first: u64, words: &[u64]) -> Mismatch {
    payload.verify(first, words).expect_err("these words are wrong")
}

/// Against words that were worked out apart from this code: fill and verify share it, and would agree on any mistake in it.
#[test]
fn words_are_as_the_formula_has_them() {
    assert_eq!(
        filled(&Payload::new(0, 1), 0, 3),
        [0x6927_a21b_3f04_ccc7, 0x7cbf_bb53_a387_ccc8, 0x9057_d48c_080a_ccc9]
    );
    assert_eq!(Payload::new(u64::MAX, 211_887).word(16_383), 0xe6e2_0ca5_9254_4428);
}

#[test]
fn words_of_small_blocks_and_writes_are_all_different() {
    let mut seen = HashSet::new();
    for block in 0..64 {
        for write in 1..64 {
            for word in filled(&Payload::new(block, write), 0, 64) {
                assert!(seen.insert(word), "block {block}, write {write} repeats {word:#x}");
            }
        }
    }
}

#[test]
fn a_mismatch_says_what_is_there() {
    let payload = Payload::new(42, 17);
    let good = filled(&payload, 0, 2048);

    let mut poisoned = good.clone();
    payload.poison(512, &mut poisoned[512..1024]);
    let found = mismatch(&payload, 0, &poisoned);
    assert_eq!((found.byte_offset, found.holds), (4096, Holds::Poison));
    assert_eq!(
        found.to_string(),
        format!(
            "block 42, write 17: byte 4096 of the block begins a word {:#018x} that must be {:#018x}: \
             still poison, so nothing was read into it",
            !good[512], good[512]
        )
    );

    let mut pages_swapped = good.clone();
    pages_swapped[..1024].rotate_left(512);
    let found = mismatch(&payload, 0, &pages_swapped);
    assert_eq!((found.byte_offset, found.holds), (0, Holds::SamePayload { byte_offset: 4096 }));

    let mut stale = good.clone();
    Payload::new(42, 16).fill(1024, &mut stale[1024..]);
    let found = mismatch(&payload, 0, &stale);
    assert_eq!((found.byte_offset, found.holds), (8192, Holds::OtherPayload { block: 42, write: 16 }));

    let found = mismatch(&payload, 100, &filled(&Payload::new(7, 3), 100, 8));
    assert_eq!((found.byte_offset, found.holds), (800, Holds::OtherPayload { block: 7, write: 3 }));

    let mut zero_tail = good.clone();
    zero_tail[2047] = 0;
    let found = mismatch(&payload, 0, &zero_tail);
    assert_eq!((found.byte_offset, found.holds), (16_376, Holds::Zero));

    let mut flipped = good.clone();
    flipped[3] ^= 1 << 40;
    let found = mismatch(&payload, 0, &flipped);
    assert_eq!((found.expected, found.found), (good[3], flipped[3]));
    assert_eq!((found.byte_offset, found.holds), (24, Holds::Unknown));

    // Two words cannot prove another payload, three can.
    let other = filled(&Payload::new(7, 3), 0, 3);
    assert_eq!(mismatch(&payload, 0, &other[..2]).holds, Holds::Unknown);
    assert_eq!(mismatch(&payload, 0, &other).holds, Holds::OtherPayload { block: 7, write: 3 });
    let last = filled(&payload, 0, 5).into_iter().chain(filled(&Payload::new(7, 3), 5, 1)).collect::<Vec<_>>();
    assert_eq!(mismatch(&payload, 0, &last).holds, Holds::Unknown);
}

#[test]
fn nothing_to_verify_is_right() {
    assert_eq!(Payload::new(1, 1).verify(5, &[]), Ok(()));
}

proptest! {
    #[test]
    fn mixes_are_undone(x in any::<u64>()) {
        prop_assert_eq!(unmix64(mix64(x)), x);
        prop_assert_eq!(unmix63(mix63(x & LOW_63)), x & LOW_63);
        prop_assert_eq!((x | 1).wrapping_mul(inverse(x | 1)), 1);
    }

    #[test]
    fn slices_are_the_words_and_verify(payload in any_payload(), first in 0u64..1 << 40, length in 0usize..1200) {
        let words = filled(&payload, first, length);
        for (at, word) in words.iter().enumerate() {
            prop_assert_eq!(*word, payload.word(first + at as u64));
        }
        prop_assert_eq!(payload.verify(first, &words), Ok(()));
        // In parts, as pages have them.
        let split = length / 3;
        prop_assert_eq!(filled(&payload, first + split as u64, length - split), &words[split..]);
    }

    #[test]
    fn a_changed_word_is_found_where_it_is(
        payload in any_payload(), first in 0u64..1 << 40, length in 1usize..1200, at in any::<prop::sample::Index>(), flip in 1u64..,
    ) {
        let mut words = filled(&payload, first, length);
        let at = at.index(length);
        words[at] ^= flip;
        let found = mismatch(&payload, first, &words);
        prop_assert_eq!(found.byte_offset, (first + at as u64) * 8);
        prop_assert_eq!(found.found ^ found.expected, flip);
    }

    /// What a GPU's kernels are told makes the same words.
    #[test]
    fn payload_and_poison_are_series(payload in any_payload(), first in 0u64..1 << 40, length in 1usize..600) {
        let of = |(start, step): (u64, u64)| (0..length as u64).map(|at| start.wrapping_add(step.wrapping_mul(at))).collect::<Vec<_>>();
        let mut poisoned = vec![0; length];
        payload.poison(first, &mut poisoned);
        prop_assert_eq!(of(payload.series(first)), filled(&payload, first, length));
        prop_assert_eq!(of(payload.poison_series(first)), poisoned);
    }

    #[test]
    fn poison_is_wrong_in_every_word(payload in any_payload(), first in 0u64..1 << 40, length in 1usize..600) {
        let mut words = vec![0; length];
        payload.poison(first, &mut words);
        for (at, word) in words.iter().enumerate() {
            let found = mismatch(&payload, first + at as u64, &[*word]);
            prop_assert_eq!(found.holds, Holds::Poison);
        }
    }

    #[test]
    fn shifted_words_are_wrong_everywhere(payload in any_payload(), shift in 1u64..1 << 20, length in 1usize..600) {
        let words = filled(&payload, shift, length);
        for (at, word) in words.iter().enumerate() {
            let found = mismatch(&payload, at as u64, &[*word]);
            prop_assert_eq!(found.holds, Holds::SamePayload { byte_offset: (at as u64 + shift) * 8 });
        }
    }

    #[test]
    fn bytes_shifted_by_less_than_a_word_are_wrong_everywhere(payload in any_payload(), shift in 1usize..8) {
        let bytes: Vec<u8> = filled(&payload, 0, 65).iter().flat_map(|word| word.to_ne_bytes()).collect();
        for (at, word) in bytes[shift..].as_chunks::<8>().0.iter().enumerate() {
            prop_assert!(payload.verify(at as u64, &[u64::from_ne_bytes(*word)]).is_err());
        }
    }

    #[test]
    fn another_payload_is_named(one in any_payload(), block in any::<u64>(), write in 1u64..1 << 63, first in 0u64..1 << 40) {
        let other = Payload::new(block, write);
        prop_assume!(one != other);
        let found = mismatch(&one, first, &filled(&other, first, 64));
        prop_assert_eq!(found.holds, Holds::OtherPayload { block, write });
    }
}
