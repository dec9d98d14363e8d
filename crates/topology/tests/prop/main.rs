//! Pods of machines made up at random: whatever the machine, whatever may be used of it.

mod machine;
mod pods;
