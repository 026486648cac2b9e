//! The table of a run: test × tier.

use std::fmt;

use super::{Ending, Tier, Verdict, list, word};

/// Tests by name, and how each ended.
pub type Verdicts = Vec<(String, Verdict)>;

/// How each test ended on each tier that ran it.
#[derive(Debug, Default)]
pub struct Table {
    tiers: Vec<String>,
    /// For each test a verdict of each tier, or none where that has no such test.
    rows: Vec<(String, Vec<Option<Verdict>>)>,
}

/// How often a tier's tests ended in which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// It did as its tests want.
    pub passed: usize,
    /// It did not.
    pub failed: usize,
    /// It could not run them.
    pub skipped: usize,
}

impl Table {
    /// Adds a tier with what it has shown.
    pub fn add(&mut self, tier: impl Into<String>, verdicts: Verdicts) {
        let before = self.tiers.len();
        self.tiers.push(tier.into());
        for (test, verdict) in verdicts {
            let row = match self.rows.iter().position(|(name, _)| *name == test) {
                Some(row) => row,
                None => {
                    self.rows.push((test, vec![None; before]));
                    self.rows.len() - 1
                }
            };
            if let Some((_, endings)) = self.rows.get_mut(row) {
                endings.push(Some(verdict));
            }
        }
        self.rows.iter_mut().for_each(|(_, endings)| endings.resize(before + 1, None));
    }

    /// Runs every device test on a tier, and adds that.
    pub fn run(&mut self, tier: &dyn Tier) {
        self.add(tier.name(), list().into_iter().map(|test| (test.name.clone(), test.run(tier))).collect());
    }

    /// What did not pass, each with its test, its tier and the reason; those that failed first.
    pub fn reasons(&self) -> (Vec<String>, Vec<String>) {
        let mut reasons = (Vec::new(), Vec::new());
        for (test, endings) in &self.rows {
            for (ending, tier) in endings.iter().zip(&self.tiers) {
                let Some(Err(ending)) = ending else { continue };
                let line = format!("{test} on {tier}: {ending}");
                match ending {
                    Ending::Failed(_) => reasons.0.push(line),
                    Ending::Skipped(_) => reasons.1.push(line),
                }
            }
        }
        reasons
    }

    /// Each tier with its counts.
    pub fn counts(&self) -> impl Iterator<Item = (&str, Counts)> {
        self.tiers.iter().enumerate().map(|(column, tier)| {
            let mut counts = Counts::default();
            for (_, endings) in &self.rows {
                match endings.get(column) {
                    None | Some(None) => {}
                    Some(Some(Ok(()))) => counts.passed += 1,
                    Some(Some(Err(Ending::Failed(_)))) => counts.failed += 1,
                    Some(Some(Err(Ending::Skipped(_)))) => counts.skipped += 1,
                }
            }
            (tier.as_str(), counts)
        })
    }
}

/// The rows, the reasons, and the counts.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|(test, _)| test.chars().count()).max().unwrap_or_default().max("test".len());
        let row = |test: &str, cells: Vec<&str>| {
            let cells: Vec<_> = cells
                .into_iter()
                .zip(&self.tiers)
                .map(|(cell, tier)| format!("{cell:0$}", tier.len().max(7)))
                .collect();
            format!("{test:width$} {}", cells.join("  ").trim_end())
        };
        writeln!(f, "{}", row("test", self.tiers.iter().map(String::as_str).collect()))?;
        for (test, endings) in &self.rows {
            let cells = endings.iter().map(|ending| ending.as_ref().map_or("-", word)).collect();
            writeln!(f, "{}", row(test, cells))?;
        }
        let (failed, skipped) = self.reasons();
        writeln!(f)?;
        for reason in skipped.iter().chain(&failed) {
            writeln!(f, "{reason}")?;
        }
        for (tier, Counts { passed, failed, skipped }) in self.counts() {
            writeln!(f, "{tier}: {passed} passed, {failed} failed, {skipped} skipped")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_that_have_other_tests_stand_side_by_side() {
        let mut table = Table::default();
        let named = |name: &str, verdict: Verdict| (name.to_owned(), verdict);
        table.add("one", vec![named("a", Ok(())), named("b", Err(Ending::Failed("broken".to_owned())))]);
        table.add("two", vec![named("c", Ok(())), named("a", Err(Ending::Skipped("no such device".to_owned())))]);
        let text = table.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..4],
            ["test one      two", "a    passed   skipped", "b    FAILED   -", "c    -        passed"]
        );
        assert_eq!(lines[5], "a on two: skipped: no such device");
        assert_eq!(lines[6], "b on one: FAILED: broken");
        assert_eq!(lines[7..], ["one: 1 passed, 1 failed, 0 skipped", "two: 1 passed, 0 failed, 1 skipped"]);
    }
}
