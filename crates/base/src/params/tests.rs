use super::*;

fn error(text: &str) -> String {
    text.parse::<Params>().unwrap_err().to_string()
}

#[test]
fn written_params_are_read_back() {
    let params = Params {
        default_affinity_scope: AffinityScope::Numa,
        max_active: 3,
        idle_timeout_ms: 0,
        unbound_cpus: Some("0-3,8".parse().unwrap()),
        cpu_quota: false,
        rcu: Tunables { early_qs: false, stall_timeout_ms: 500, ..Tunables::default() },
        ..Params::default()
    };
    assert_eq!(params.to_string().parse(), Ok(params));
    assert_eq!(Params::default().to_string().parse(), Ok(Params::default()));
}

#[test]
fn no_text_changes_nothing() {
    for empty in ["", "  ", ",", " , ,"] {
        assert_eq!(empty.parse(), Ok(Params::default()), "{empty:?}");
    }
}

#[test]
fn keys_and_values_may_have_space_around_them() {
    let params: Params = " workqueue.max_active = 16 , qpw=on_demand,".parse().unwrap();
    assert_eq!((params.max_active, params.qpw), (16, Qpw::OnDemand));
}

#[test]
fn each_key_reads_its_own_output_and_rejects_nonsense() {
    for key in keys() {
        let mut params = Params::default();
        let word = key.value(&params);
        assert_eq!(params.set(key.name, &word), Ok(()), "{}", key.name);
        assert_eq!(params, Params::default(), "{}", key.name);
        let error = params.set(key.name, "nonsense").unwrap_err();
        let expected = format!("{}=nonsense: expected {}", key.name, key.expects());
        assert_eq!(error.to_string(), expected);
        assert_eq!(params, Params::default(), "{} changed", key.name);
    }
}

#[test]
fn keys_have_a_family_a_description_and_no_duplicate() {
    let names: Vec<_> = keys().map(|key| key.name).collect();
    for (i, key) in keys().enumerate() {
        assert!(!key.about.is_empty() && !key.about.contains('\n'));
        assert!(!names[..i].contains(&key.name), "{} twice", key.name);
        assert!(!key.name.contains([',', '=', ' ']), "{}", key.name);
    }
}

fn errors(rows: &[(&str, &str)]) {
    for (text, expected) in rows {
        assert_eq!(error(text), *expected);
    }
}

#[test]
fn unknown_key_is_named_with_the_nearest_one() {
    for key in ["workqueue.max_activ", "max_active"] {
        let expected = format!("unknown key \"{key}\"; did you mean workqueue.max_active?");
        assert_eq!(error(&format!("{key}=3")), expected);
    }
    errors(&[
        ("color=red", "unknown key \"color\""),
        ("=3", "unknown key \"\""),
        ("rcu.early_q=0", "unknown key \"rcu.early_q\"; did you mean rcu.early_qs?"),
        ("workqueue.cpu_quota", "\"workqueue.cpu_quota\" has no value: expected key=value"),
        ("workqueue.max_active=1,workqueue.max_active=2", "workqueue.max_active is set twice"),
    ]);
}

#[test]
fn a_value_out_of_range_is_named_with_the_range() {
    for word in ["0", "513", "-1", "1.5", "", "0x10"] {
        let text = format!("workqueue.max_active={word}");
        let expected = format!("{text}: expected a number from 1 to 512");
        assert_eq!(error(&text), expected);
    }
    errors(&[
        ("rcu.boost=maybe", "rcu.boost=maybe: expected on or off"),
        (
            "workqueue.default_affinity_scope=l3",
            "workqueue.default_affinity_scope=l3: expected one of cpu, smt, cache_shard, cache, numa, system",
        ),
        ("qpw=\n", "qpw=: expected one of queue, on_demand, every_op"),
    ]);
}

#[test]
fn a_wrong_pair_does_not_affect_the_other_pairs() {
    let mut params = Params::default();
    let mut errors = Vec::new();
    let text = "workqueue.max_active=7,max_activ=3,workqueue.cpu_quota,strict,workqueue.max_active=9,qpw=x,rcu.boost=0";
    let outcome = params.set_all(text, |error| {
        errors.push(error.to_string());
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
    assert!(params.max_active == 7 && !params.rcu.boost);
    assert_eq!(params.qpw, Qpw::default());
    assert_eq!(errors.len(), 4, "{errors:?}");
    // Parsing is equally strict with and without the word.
    assert_eq!("strict".parse(), Ok(Params::default()));
    assert_eq!(error("strict,qpw=x"), error("qpw=x"));
}
