//! The lanes of a run, as the command line has them.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use tentpeg_engine::{CpuList, Engine, EngineConfig, LaneIdle, LaneOptions, LanePin, MAX_DEVICES};

use crate::options::number;
use crate::report::{Row, Value};

/// How lanes with threads are run.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneArgs {
    /// Threads that turn the devices' lanes [default: one for each device]
    #[arg(long, value_name = "NUMBER", value_parser = number::<usize>(1, MAX_DEVICES as u64), allow_hyphen_values = true)]
    pub lanes: Option<usize>,
    /// Where lanes run: `near` their devices, or on processors by number, one for each lane, such as 0,2-3 [default: anywhere]
    #[arg(long, value_name = "near|CPUS", value_parser = pin)]
    pub pin: Option<LanePin>,
    /// How long a lane polls in vain before it sleeps, with its unit, such as 100us, or `always` [default: 1ms]
    #[arg(long, value_name = "TIME|always", value_parser = poll, allow_hyphen_values = true)]
    pub poll: Option<LaneIdle>,
    /// Tell of commands that take so long or longer, such as 10ms: the last ones of each device
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub slow: Option<Duration>,
}

/// Reads a time, with its unit.
fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "write a time with its unit, such as 100us or 1ms".to_owned())
}

/// Reads where lanes run.
fn pin(text: &str) -> Result<LanePin, String> {
    match text {
        "near" => Ok(LanePin::Near),
        list => {
            CpuList::from_str(list).map(LanePin::Cpus).map_err(|error| format!("write `near`, or processors: {error}"))
        }
    }
}

/// Reads how long a lane polls.
fn poll(text: &str) -> Result<LaneIdle, String> {
    match text {
        "always" => Ok(LaneIdle::Poll),
        "0" => Ok(LaneIdle::Sleep { after: Duration::ZERO }),
        after => match time(after) {
            Ok(after) => Ok(LaneIdle::Sleep { after }),
            Err(error) => Err(format!("write `always`, or {}", error.trim_start_matches("write "))),
        },
    }
}

impl LaneArgs {
    /// `config`, and what is said here.
    pub fn configure(&self, config: EngineConfig) -> EngineConfig {
        EngineConfig { lanes: self.options(), slow_request: self.slow, ..config }
    }

    /// What the engine is told of its lanes.
    pub fn options(&self) -> LaneOptions {
        let Self { lanes, pin, poll, .. } = self.clone();
        LaneOptions { threads: lanes, idle: poll.unwrap_or_default(), pin: pin.unwrap_or_default() }
    }

    /// How the threads are run, in words.
    fn options_shown(&self) -> String {
        let LaneOptions { idle, pin, .. } = self.options();
        let idle = match idle {
            LaneIdle::Poll => "that always poll".to_owned(),
            LaneIdle::Sleep { after } => format!("that sleep after {} in vain", humantime::format_duration(after)),
        };
        match pin {
            LanePin::Free => idle,
            LanePin::Near => format!("{idle}, near their devices"),
            LanePin::Cpus(cpus) => format!("{idle}, on processors {cpus}"),
        }
    }

    /// The first option that is for threads only, where one was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [(self.lanes.is_some(), "--lanes"), (self.pin.is_some(), "--pin"), (self.poll.is_some(), "--poll")];
        given.into_iter().find(|(given, _)| *given).map(|(_, option)| option)
    }
}

/// How a report shows what lanes and devices there were; without options of threads the caller has driven the lane.
pub fn rows(engine: &Engine, threads: Option<&LaneArgs>) -> [Row; 3] {
    let (devices, lanes) = (engine.devices().len() as u64, engine.lanes() as u64);
    let shown =
        threads.map_or("1, turned by whoever submits".to_owned(), |args| format!("{lanes}, {}", args.options_shown()));
    [
        Row::json("devices", Value::Count(devices)),
        Row::json("lanes", Value::Count(lanes)),
        Row::table("lanes", Value::Text(shown)),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LaneArgs,
    }

    fn args(words: &str) -> Result<LaneArgs, clap::Error> {
        Line::try_parse_from(["run"].into_iter().chain(words.split_whitespace())).map(|line| line.args)
    }

    #[test]
    fn options_are_read_and_what_is_not_said_is_the_engines_own() {
        assert_eq!((args("").unwrap().options(), args("").unwrap().given()), (LaneOptions::default(), None));
        let all = args("--lanes 2 --pin 0,2-3 --poll 100us").unwrap();
        assert_eq!(
            all.options(),
            LaneOptions {
                threads: Some(2),
                idle: LaneIdle::Sleep { after: Duration::from_micros(100) },
                pin: LanePin::Cpus(CpuList(vec![0, 2, 3])),
            }
        );
        let config = args("--slow 10ms").unwrap();
        assert_eq!(config.configure(EngineConfig::default()).slow_request, Some(Duration::from_millis(10)));
        assert_eq!(config.given(), None, "a lane that the caller drives has slow commands, too");
        assert_eq!(args("--poll always --pin near").unwrap().options().idle, LaneIdle::Poll);
        assert_eq!(args("--poll always --pin near").unwrap().options().pin, LanePin::Near);
        assert_eq!(
            (args("--pin near").unwrap().given(), args("--poll 0").unwrap().given()),
            (Some("--pin"), Some("--poll"))
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_what_is_right() {
        for (words, message) in [
            ("--lanes 0", "write a whole number from 1 to 64"),
            ("--pin far", "write `near`, or processors: 'far' lists no processors"),
            ("--poll 5", "write `always`, or a time with its unit, such as 100us or 1ms"),
            ("--poll -1ms", "write `always`, or a time with its unit"),
            ("--slow 5", "write a time with its unit, such as 100us or 1ms"),
        ] {
            let error = args(words).unwrap_err().to_string();
            assert!(error.contains(message), "{words}: {error}");
        }
    }
}
