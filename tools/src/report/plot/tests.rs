use super::*;

fn plot(marks: Vec<Mark>) -> Plot {
    Plot { says: "A <plot>.".into(), x: Axis::up_to("seconds", 10.0), y: Axis::from_zero("GB/s", 4.0), marks }
}

/// The narrow drawing, where the frame goes from 17.2 to 326 and from the top of `marks` to 206.
fn narrow(marks: Vec<Mark>) -> String {
    let svg = plot(marks).svg();
    let narrow = svg.find("<svg class=\"narrow\"").unwrap();
    svg[narrow..].to_owned()
}

#[test]
fn marks_are_where_their_values_are() {
    let svg = narrow(vec![
        Mark::Steps { class: "reads", steps: vec![(0.0, 5.0, 4.0), (5.0, 10.0, 0.0)] },
        Mark::Line { class: "all", points: vec![(0.0, 0.0), (10.0, 4.0)] },
        Mark::Bars { class: "all", bars: vec![(0.0, 5.0, 2.0, "half & half".into())] },
        Mark::Dot { class: "this", at: (5.0, 2.0), says: "<middle>".into() },
    ]);
    let left = CHARACTER + 10.0;
    let (middle, right) = ((left + 326.0) / 2.0, 326.0);
    for expected in [
        format!(
            "<path class=\"line reads\" d=\"M{left:.1} 24.0L{middle:.1} 24.0L{middle:.1} 206.0L{right:.1} 206.0\"/>"
        ),
        format!("206.0L{right:.1} 206.0L{left:.1} 206.0Z\"/>"),
        format!("<path class=\"line all\" d=\"M{left:.1} 206.0L{right:.1} 24.0\"/>"),
        format!(
            "x=\"{left:.1}\" y=\"115.0\" width=\"{:.1}\" height=\"91.0\"><title>half &amp; half</title>",
            middle - left - 1.0
        ),
        format!("<circle class=\"dot this\" cx=\"{middle:.1}\" cy=\"115.0\" r=\"4\"><title>&lt;middle&gt;</title>"),
        "aria-label=\"A &lt;plot&gt;.\"".to_owned(),
    ] {
        assert!(svg.contains(&expected), "{expected} in\n{svg}");
    }
}

#[test]
fn nothing_to_draw_is_no_path() {
    let svg = plot(vec![Mark::Steps { class: "reads", steps: Vec::new() }]).svg();
    assert!(!svg.contains("<path"));
}

#[test]
fn labels_for_which_there_is_no_room_are_left_out_and_their_lines_stay() {
    let uprights = [5.0, 5.1, 9.0].map(|at| Mark::Upright { at, label: "p99".into() });
    let svg = narrow(uprights.to_vec());
    assert_eq!((svg.matches("class=\"upright\"").count(), svg.matches(">p99<").count()), (3, 2));
    let ticks = (0..=100).map(|value| Tick { value: value.into(), label: "100,000".into() }).collect();
    let crowded = Plot { x: Axis::linear("slots", 100.0, ticks), ..plot(Vec::new()) };
    let svg = crowded.svg();
    assert!((6..20).contains(&svg.matches("100,000").count()), "{}", svg.matches("100,000").count());
}

#[test]
fn a_band_is_as_thick_as_it_carries() {
    let band = |bytes| Band { name: "reads", to_device: false, bytes };
    let most = Band { name: "writes", to_device: true, bytes: 1 << 30 };
    let thickness = |svg: &str, name: &str| {
        let path = svg.split(&format!("class=\"band {name}\" d=\"M")).nth(1).unwrap();
        let y = |point: &str| point.split(' ').nth(1).unwrap().parse::<f64>().unwrap();
        let points: Vec<_> = path.split('Z').next().unwrap().split('L').collect();
        y(points[6]) - y(points[0])
    };
    let svg = flow("x", [band(1 << 29), most]);
    assert_eq!((thickness(&svg, "reads"), thickness(&svg, "writes")), (17.0, 34.0));
    assert_eq!(thickness(&flow("x", [band(1), most]), "reads"), 2.0, "it can be seen");
    let none = flow("x", [band(0), most]);
    assert!(none.contains("band-none reads") && !none.contains("\"band reads\""));
}
