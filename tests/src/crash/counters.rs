//! What a run did and met.

use std::fmt;

macro_rules! counters {
    ( $( $name:ident: $text:literal; )+ ) => {
        /// Counts of a run.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each has its text in the table")]
        pub struct Counters {
            $( pub $name: u64, )+
        }

        impl fmt::Display for Counters {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $( writeln!(f, "{:<60} {:>9}", $text, self.$name)?; )+
                Ok(())
            }
        }
    };
}

counters! {
    rounds: "rounds, each with a kill";
    images: "images";
    killed_writing: "kills with writes in flight";
    killed_changing: "kills in a change of the label";
    killed_closing: "kills in a shutdown";
    sessions: "controllers shut down in order";
    writes: "acknowledged writes, zeroes, deallocations";
    flushes: "acknowledged flushes";
    durable: "acknowledged durable writes checked";
    changes: "acknowledged changes of the label checked";
    refused: "changes refused for want of room";
    change_done: "changes in flight found done";
    change_undone: "changes in flight found not done";
    blocks: "blocks compared";
    in_flight_done: "blocks of writes in flight found written";
    in_flight_undone: "blocks of writes in flight found as before";
    lost: "acknowledged writes in mode none lost";
}
