//! What the engine has counted since its devices were opened: by lane, device, segment and path.

use serde_json::{Value as Json, json};
use tentpeg_engine::statistics::{DeviceStatistics, Flow, Flows, LaneStatistics, SegmentStatistics, Statistics};

use super::page::markup::{self, Table};
use super::{Row, Value};
use crate::units::{Count, Elapsed};

/// Slow commands that the table shows.
const SHOWN: usize = 3;

/// How a report shows them: all as one object of JSON, and in the table what is out of the ordinary.
pub(super) fn rows(statistics: &Statistics) -> Vec<Row> {
    let mut rows = vec![Row::json("statistics", Value::Nested(all(statistics)))];
    let sum = |of: fn(&DeviceStatistics) -> u64| statistics.devices.iter().map(of).sum::<u64>();
    let counts = [
        ("commands again", sum(|device| device.retries)),
        ("controller resets", sum(|device| device.resets)),
        ("slow commands", sum(|device| device.slow)),
    ];
    rows.extend(
        counts.into_iter().filter(|(_, count)| *count > 0).map(|(what, count)| Row::table(what, Value::Count(count))),
    );
    for device in &statistics.devices {
        let last = device.told.iter().rev().take(SHOWN);
        rows.extend(last.map(|slow| Row::table("slow", Value::Text(slow.to_string()))));
    }
    rows
}

fn all(statistics: &Statistics) -> Json {
    json!({
        "lanes": statistics.lanes.iter().map(lane).collect::<Vec<_>>(),
        "devices": statistics.devices.iter().map(device).collect::<Vec<_>>(),
        "segments": statistics.segments.iter().map(segment).collect::<Vec<_>>(),
    })
}

fn lane(lane: &LaneStatistics) -> Json {
    json!({
        "devices": lane.devices,
        "cpus": lane.cpus.as_ref().map(ToString::to_string),
        "sleeps": { "begun": lane.sleeps, "called": lane.called, "interrupted": lane.interrupted, "timed_out": lane.timed_out },
    })
}

fn device(device: &DeviceStatistics) -> Json {
    let DeviceStatistics { name, depth, occupancy, retries, resets, slow, told, flows } = device;
    json!({
        "name": name,
        "depth": depth,
        "in_flight": { "turns": occupancy.turns, "mean": occupancy.mean(), "most": occupancy.most },
        "retries": retries,
        "resets": resets,
        "slow_commands": slow,
        "slow_requests": told.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "paths": paths(flows),
    })
}

fn segment(segment: &SegmentStatistics) -> Json {
    json!({ "id": segment.id.0, "name": segment.name, "paths": paths(&segment.flows) })
}

fn paths(flows: &Flows) -> Json {
    let flow = |flow: &Flow| {
        let at = |quantile| flow.latency.at(quantile).map(|time| time.as_nanos() as u64);
        let [mean, longest] =
            [flow.latency.mean(), flow.latency.longest()].map(|time| time.map(|time| time.as_nanos() as u64));
        json!({
            "requests": flow.requests,
            "commands": flow.commands,
            "bytes": flow.bytes,
            "latency_ns": { "mean": mean, "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": longest },
        })
    };
    Json::Object(flows.iter().map(|(path, of)| (path.name().to_owned(), flow(of))).collect())
}

/// How a page shows them: what went by each path of each device, and how full the devices' queues were.
pub(super) fn section(statistics: &Statistics) -> String {
    let count = |number: u64| Count(number).to_string();
    let time = |time: Option<_>| time.map_or("none".to_owned(), |time| Elapsed(time).to_string());
    let mut rows = Vec::new();
    for device in &statistics.devices {
        for (path, flow) in device.flows.iter() {
            let latency = &flow.latency;
            let mut cells = vec![device.name.clone(), path.name().replace('_', " ")];
            cells.extend([flow.requests, flow.commands, flow.bytes].map(count));
            cells.extend([latency.at(0.5), latency.at(0.99), latency.longest()].map(time));
            rows.push(cells);
        }
    }
    let columns = ["device", "path", "requests", "commands", "bytes", "p50", "p99", "longest"];
    let columns = columns.map(str::to_owned).to_vec();
    let flows = Table { caption: "Commands by device and path, and how long they took".to_owned(), columns, rows };
    let device = |device: &DeviceStatistics| {
        let numbers =
            [device.occupancy.most, device.depth as u64, device.retries, device.resets, device.slow].map(count);
        let mean = format!("{:.1}", device.occupancy.mean());
        [device.name.clone(), mean].into_iter().chain(numbers).collect()
    };
    let columns = ["device", "in flight, on average", "most", "depth", "asked for again", "resets", "slow"];
    let queues = Table {
        caption: "The devices' queues".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: statistics.devices.iter().map(device).collect(),
    };
    let slow = statistics.devices.iter().flat_map(|device| &device.told).map(|slow| ("slow", slow.to_string()));
    let slow: Vec<_> = slow.collect();
    let slow = if slow.is_empty() { String::new() } else { markup::list(slow) };
    format!(
        "<section class=\"card\">\n<h2>What the engine counted</h2>\n<p class=\"about\">Since the devices were opened, \
         filling included. A command's latency is from its issue until its lane saw its end.</p>\n{flows}{queues}{slow}</section>\n"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tentpeg_engine::{Engine, EngineConfig, OpCode, Request};

    use super::*;

    #[test]
    fn what_an_engine_counted_is_in_json_and_on_the_page() {
        let config = EngineConfig { slow_request: Some(Duration::ZERO), ..EngineConfig::default() };
        let engine = Engine::open("model:size=1MiB", config).unwrap();
        let memory = engine.allocate_memory(4096).unwrap();
        let (source, target_id) = (memory.address(), engine.segments()[0].id);
        let batch = engine.allocate_batch(1).unwrap();
        let request = Request { opcode: OpCode::Write, source, target_id, target_offset: 8192, length: 4096 };
        engine.submit(&batch, &[request]).unwrap();
        batch.wait(Duration::from_secs(60)).unwrap();
        batch.free();
        let statistics = engine.statistics();
        engine.close().unwrap();
        let rows = rows(&statistics);
        let Value::Nested(json) = &rows[0].value else { panic!("{rows:?}") };
        let path = &json["devices"][0]["paths"]["direct_write"];
        assert_eq!((&path["requests"], &path["commands"], &path["bytes"]), (&json!(1), &json!(1), &json!(4096)));
        assert!(path["latency_ns"]["p50"].as_u64().unwrap() > 0, "{json}");
        assert_eq!(json["segments"][0]["paths"], json["devices"][0]["paths"], "one segment on one device");
        assert_eq!((&json["lanes"][0]["devices"], &json["lanes"][0]["cpus"]), (&json!([0]), &Json::Null));
        assert_eq!(json["devices"][0]["in_flight"]["most"], json!(1));
        let slow = json["devices"][0]["slow_requests"][0].as_str().unwrap();
        assert!(slow.starts_with("slow direct_write: 4096 bytes at 8192 of segment 'whole'"), "{slow}");
        let table = super::super::table(&rows);
        assert!(table.contains("slow commands  1\n") && table.contains(slow) && !table.contains("resets"), "{table}");
        let page = section(&statistics);
        for text in ["direct write", "<td>4,096</td>", "slow direct_write: 4096 bytes", "on average"] {
            assert!(page.contains(text), "{text}: {page}");
        }
    }
}
