"""Configurations with a fault, each with a part of the message for it."""

HEAD = "apiVersion: topogate.io/v1beta1\nkind: Configuration\n"
TIERS = (
    "tiers: [{name: low, priorityClassName: l}, {name: mid, priorityClassName: m},"
    " {name: high, priorityClassName: h}]\n"
)
MODEL = "models: [{name: H100, labels: {a.io/b: c}}]\n"
MODELS = "models: [{name: RTX 4090, aliases: [GeForce], labels: {a.io/gpu: rtx}}]\n"

WRONG_AFTER_HEAD = {
    "namespace: {}": "namespace: unknown key; did you mean namespaces?",
    "gangs: {setle: 2s}": "gangs.setle: unknown key; did you mean settle?",
    "gangs:": "gangs: must be a mapping, not nothing; leave the key out, or give it a value",
    "gatePrefix: a\ngatePrefix: b": "line 4, column 1: key 'gatePrefix' is written twice",
    "gatePrefix: mine.io/": "gatePrefix: must be a prefix of a gate's name, not 'mine.io/'",
    "gatePrefix: 'a b'": "gatePrefix: must be a prefix of a gate's name, not 'a b'",
    "gatePrefix:": "gatePrefix: must be a prefix of a gate's name, not nothing; leave the key out",
    "gatePrefix: {{ .Values.gate }}": "line 3, column 14: a key must be text; is this a template",
    "gatePrefix: !!bool maybe": "line 3, column 13: 'maybe' cannot be read as a YAML bool",
    "gatePrefix: !!int ''": "line 3, column 13: '' cannot be read as a YAML int",
    "gatePrefix: 2024-13-45": "line 3, column 13: '2024-13-45' cannot be read",
    f"gatePrefix: {'9' * 5000}": "cannot be read as a YAML int",
    "namespaces: {[a]: {}}": "line 3, column 14: a key must be text",
    "namespaces: {excluded: ~}": "namespaces.excluded: must be a list, each a namespace name, not nothing",
    "namespaces: {excluded: a}": "namespaces.excluded: must be a list, each a namespace name, not text",
    "namespaces: {rules: {a: }}": "namespaces.rules.a: must be a mapping, not nothing",
    "namespaces: {rules: {A_b: {}}}": "namespaces.rules.A_b: must be a namespace name",
    f"namespaces: {{rules: {{{'a' * 64}: {{}}}}}}": "must be a namespace name",
    "namespaces: {rules: {7: {}}}": "namespaces.rules: key 7 must be text; quote it",
    f"{TIERS}namespaces: {{rules: {{a: {{defaultTier: ''}}}}}}": "a.defaultTier: must be a name, not ''",
    f"{TIERS}namespaces: {{rules: {{a: {{defaultTier: top}}}}}}": (
        "namespaces.rules.a.defaultTier: no tier 'top'; known are low, mid, high"
    ),
    f"{TIERS}namespaces: {{rules: {{a: {{defaultTier: high, maximumTier: mid}}}}}}": (
        "namespaces.rules.a.defaultTier: 'high' is above maximumTier 'mid'"
    ),
    f"{MODEL}namespaces: {{rules: {{a: {{defaultModel: B200}}}}}}": (
        "namespaces.rules.a.defaultModel: no GPU model 'B200'; known are H100"
    ),
    "tiers: [{name: a}]": "tiers[0].priorityClassName: is missing",
    "tiers: [{name: a, priorityClassName: x}, {name: b}]": "tiers[1].priorityClassName: is missing",
    TIERS.replace("mid", "low"): "tiers[1].name: 'low' occurs twice",
    TIERS.replace(": m}", ": l}"): "tiers[1].priorityClassName: 'l' occurs twice",
    "tiers: [{name: a, priorityClassName: system-node-critical}]": "are for the cluster's own pods",
    'models: [{name: "", labels: {a: b}}]': "models[0].name: must be a name of a GPU model",
    'models: [{name: " ", labels: {a: b}}]': "models[0].name: must be a name of a GPU model",
    'models: [{name: a, aliases: [""], labels: {a: b}}]': "models[0].aliases[0]: must be a name",
    f"models: [{{name: {'a' * 101}, labels: {{a: b}}}}]": "(at most 100 characters, some letters or digits)",
    f"models: [{{name: a, labels: {{{'a' * 254}/b: c}}}}]": "must be a label key, not",
    "models: [{name: a}]": "models[0].labels: is missing",
    "models: [{name: a, labels: {}}]": "models[0].labels: must have at least one entry",
    "models: [{name: '--', labels: {a: b}}]": "models[0].name: must be a name of a GPU model",
    "models: [{name: RTX 4090, labels: {a: b}}, {name: x, aliases: [rtx4090], labels: {a: b}}]": (
        "models[1]: 'rtx4090' is the same name as 'RTX 4090'"
    ),
    "models: [{name: 4090, labels: {a: b}}]": "some letters or digits), not 4090; quote it",
    "models: [{name: a, labels: {a: 1}}]": "0-9 - _ .), not 1; quote it",
    "models: [{name: a, labels: {a~b: c}}]": "labels.a~b: must be a label key, not 'a~b'",
    "models: [{name: a, labels: {a: b c}}]": "models[0].labels.a: must be a label value",
    "gpus: {resources: []}": "gpus.resources: must have at least one entry",
    "gpus: {resources: [gpu]}": "gpus.resources[0]: must be a resource name or pattern, not 'gpu'",
    "gpus: {deviceClasses: true}": "name or pattern, not true or false",
    "schedulerNames: []": "schedulerNames: must have at least one entry",
    "topology: {levels: {}}": "topology.levels: must have at least one entry",
    "topology: {levels: {a: [x, y], b: [z]}}": "topology.levels: each level needs one label key for each",
    "topology: {levels: [{a: [x, y]}, {b: [z]}]}": "topology.levels: each level needs one label key for each",
    "topology: {levels: [{a: x, b: y}]}": "topology.levels[0]: must have exactly one entry, not 2",
    "topology: {levels: [{a: []}]}": "topology.levels[0].a: must have at least one entry, not 0",
    "topology: {levels: [{'a,b': x}]}": "topology.levels[0].a,b: must be a name without comma and colon",
    "topology: {levels: [{a: x}, {a: y}]}": "topology.levels[1]: 'a' occurs twice",
    "gangs: {settle: 5}": "gangs.settle: must be a duration, as 30s, 5m or 1h30m, not 5",
    "gangs: {settle: soon}": "not 'soon'",
    "gangs: {settle: -1s}": "not '-1s'",
    "gangs: {settle: 2d}": "not '2d'",
    "gangs: {settle: 100000h}": "not '100000h'",
    "gangs: {settle: }": "gangs.settle: must be a duration, as 30s, 5m or 1h30m, not nothing",
    "gangs: {native: ignore}": "gangs.native: must be one of adopt, leave, not 'ignore'",
    "gangs: {labels: [name, name]}": "gangs.labels[1]: 'name' occurs twice",
    "gangs: {labels: name}": "gangs.labels: must be a list, each a label key",
    "gangs: {labels: [a b]}": "gangs.labels[0]: must be a label key without another meaning, not 'a b'",
    "gangs: {labels: [A.io/b]}": "gangs.labels[0]: must be a label key without another meaning, not 'A.io/b'",
    "gangs: {labels: [job-name]}": "without another meaning, not 'job-name'",
    "gangs: {labels: [topogate.io/gang]}": "without another meaning, not",
    "gangs: {owners: [flows.example.com]}": "gangs.owners[0]: must be a kind of owner, Kind.group, as",
    "gangs: {looseOwners: [Flow.example.com/v1]}": "gangs.looseOwners[0]: must be a kind of owner",
    "gangs: {looseOwners: [F.x.io], owners: [F.x.io]}": "gangs.looseOwners: F.x.io is in gangs.owners too",
    "placement: {mode: widest}": "must be one of best-fit, headroom, not 'widest'",
    "placement: {weights: {cpu: 0.5}}": "placement.weights.cpu: must be a whole number",
    "placement: {weights: {cpu: -1}}": "not -1",
    "placement: {weights: cpu}": "placement.weights: must be a mapping, each key a name",
    "binding: {mode: together}": "binding.mode: must be one of pinned, podgroup, not 'together'",
    "repair: {enabled: 'no'}": "repair.enabled: must be true or false, not 'no'",
    "reservations: {share: 2}": "reservations.share: must be a number from 0 to 1, not 2",
    "nodeHealth: soft": "nodeHealth: must be a mapping, not text",
    "nodeHealth: {avoid: gently}": "nodeHealth.avoid: must be one of hard, off, soft, not 'gently'",
    "nodeHealth: {failure: 3}": "nodeHealth.failure: unknown key; did you mean failures?",
    "nodeHealth: {failures: 1}": "nodeHealth.failures: must be a whole number from 2 to 100, not 1",
    "nodeHealth: {failures: 2.5}": "not 2.5",
    "nodeHealth: {avoidFor: true}": "nodeHealth.avoidFor: must be a duration",
    "spareNodes: {perBlock: -1}": "spareNodes.perBlock: must be a whole number from 0 to 1000, not -1",
    "scaleUp: on": "scaleUp: must be a mapping, not true or false",
    "scaleUp: {class: a}": "scaleUp.class: unknown key; known are provisioningClass, parameters",
    "scaleUp: {provisioningClass: A_}": "must be a ProvisioningRequest class",
    "scaleUp: {provisioningClass: 7}": "scaleUp.provisioningClass: must be a ProvisioningRequest class",
    "scaleUp: {requests: 0}": "scaleUp.requests: must be a whole number from 1 to 100000, not 0",
    "scaleUp: {pods: 1.5}": "not 1.5",
    "scaleUp: {parameters: {a: 1}}": "must be a text of at most 255 characters, not 1",
}
"""What comes after the head, and a part of its fault."""

WRONG_FAIR_ORDER = {
    "{halflife: 6h}": "fairOrder.halflife: unknown key; did you mean halfLife?",
    "{halfLife: 6}": "fairOrder.halfLife: must be a duration, as 30s, 5m or 1h30m, above 0s, not 6",
    "{halfLife: 0s}": "fairOrder.halfLife: must be a duration",
    "{halfLife: 100000h}": "fairOrder.halfLife: must be a duration",
    "{halfLife: 6 hours}": "fairOrder.halfLife: must be a duration",
    "{maximumWait: soon}": "fairOrder.maximumWait: must be a duration",
    "{weights: {a: 0}}": "fairOrder.weights.a: must be a number from 0.001 to 1000, not 0",
    "{weights: {a: -1}}": "fairOrder.weights.a: must be a number",
    "{weights: {a: .nan}}": "fairOrder.weights.a: must be a number",
    "{weights: {a: true}}": "fairOrder.weights.a: must be a number",
    "{weights: {a: '3'}}": "fairOrder.weights.a: must be a number from 0.001 to 1000, not '3'",
    "{weights: {Team_A: 3}}": "fairOrder.weights.Team_A: must be a namespace name, a pattern",
    "{weights: {'team=a': 3}}": "fairOrder.weights: 'team=a' names another label",
    "{accountLabel: unit, weights: {'team=a': 3}}": (
        "fairOrder.weights: 'team=a' names another label than accountLabel, which is unit"
    ),
    "{accountLabel: 'a b'}": "fairOrder.accountLabel: must be a label key, not 'a b'",
    "{modelCosts: {H200: 3}}": "fairOrder.modelCosts: no GPU model 'H200'; known are RTX 4090",
    "{modelCosts: {RTX 4090: 3, geforce: 4}}": (
        "fairOrder.modelCosts: 'geforce' is the same model as another entry"
    ),
    "[]": "fairOrder: must be a mapping, not a list",
    "": "fairOrder: must be a mapping, not nothing; leave the key out, or give it a value",
}
"""Values of the key fairOrder after MODELS."""
