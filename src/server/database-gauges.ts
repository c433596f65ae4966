// The gauges that are facts of the shared database: every replica shows the same, so a dashboard takes their
// max over replicas, not their sum. A table, so that a metric is one entry. Called by metrics.

import { Gauge, Registry } from 'prom-client';
import { ALERT_SEVERITIES } from '../domain/alert.js';
import { partitionMachine } from '../domain/partition.js';
import { workerLoopMachine } from '../domain/worker-loop.js';
import { QUEUE_KINDS, type Facts, type QueueFacts } from '../store/facts.js';

interface Sample {
  readonly label?: string;
  readonly value: number;
}

interface GaugeEntry {
  readonly name: string;
  readonly help: string;
  /** The label's name; its values are a closed set, never ids. */
  readonly label?: string;
  readonly read: (facts: Facts) => readonly Sample[];
}

const WEBHOOK_STATES = ['sound', 'failing', 'off'] as const;
const CIRCUITS = ['CLOSED', 'OPEN', 'HALF_OPEN'] as const;

const one = (value: number): readonly Sample[] => [{ value }];

const perKind = (facts: Facts, read: (queue: QueueFacts) => number): Sample[] =>
  QUEUE_KINDS.map((kind) => {
    const queue = facts.queues.find((each) => each.kind === kind);
    return { label: kind, value: queue ? read(queue) : 0 };
  });

const perState = (states: readonly string[], counts: Readonly<Record<string, number>>): Sample[] =>
  states.map((label) => ({ label, value: counts[label] ?? 0 }));

/** Per cent. With nothing to judge, nothing has failed. */
function successRateOf({ applied, failed }: Facts['recent']): number {
  return applied + failed === 0 ? 100 : (100 * applied) / (applied + failed);
}

const ENTRIES: readonly GaugeEntry[] = [
  {
    name: 'rules_apply_success_rate',
    help: 'Per cent of targets that succeeded, of those that came to an end in runs under way or ended within the hour.',
    read: ({ recent }) => one(successRateOf(recent)),
  },
  {
    name: 'rules_dlq_size',
    help: 'Targets in the dead-letter queue: those that FAILED.',
    read: ({ deadLetters }) => one(deadLetters),
  },
  {
    name: 'runledger_queue_depth',
    help: 'Units of work that wait: targets to apply or to set back, partitions, ops runs, reconciliations.',
    label: 'kind',
    read: (facts) => perKind(facts, ({ depth }) => depth),
  },
  {
    name: 'runledger_queue_oldest_seconds',
    help: 'Age of the oldest run that has work waiting.',
    label: 'kind',
    read: (facts) => perKind(facts, ({ oldestSeconds }) => oldestSeconds),
  },
  {
    name: 'runledger_leases',
    help: 'Units of work that some worker has in hand.',
    label: 'kind',
    read: (facts) => perKind(facts, ({ leased }) => leased),
  },
  {
    name: 'runledger_workers',
    help: 'Loops of all runner processes that were heard of within half a minute.',
    label: 'state',
    read: ({ workersByState }) => perState(workerLoopMachine.states, workersByState),
  },
  {
    name: 'runledger_channels',
    help: 'Sales channels by the state of their circuit breaker.',
    label: 'circuit',
    read: ({ channelsByCircuit }) => perState(CIRCUITS, channelsByCircuit),
  },
  {
    name: 'runledger_partitions',
    help: 'Partitions of pipeline runs that are under way.',
    label: 'status',
    read: ({ partitionsByStatus }) => perState(partitionMachine.states, partitionsByStatus),
  },
  {
    name: 'runledger_partitions_stuck',
    help: 'Running partitions without progress for ten minutes.',
    read: ({ stuckPartitions }) => one(stuckPartitions),
  },
  {
    name: 'runledger_partition_records',
    help: 'Records read so far by the partitions of pipeline runs that are under way.',
    read: ({ recordsProcessed }) => one(recordsProcessed),
  },
  {
    name: 'runledger_webhook_endpoints',
    help: 'Endpoints for webhooks: those that take what they are sent, those that do not, and those that are off.',
    label: 'state',
    read: ({ webhooksByState }) => perState(WEBHOOK_STATES, webhooksByState),
  },
  {
    name: 'runledger_oldest_transaction_seconds',
    help: 'Age of the oldest transaction of the database; an old one holds back vacuum, and with it claims.',
    read: ({ oldestTransactionSeconds }) => one(oldestTransactionSeconds),
  },
  {
    name: 'runledger_oldest_xmin_age',
    help: 'How many transactions ago the oldest began whose leftovers vacuum must keep: open, prepared, or of a slot.',
    read: ({ oldestXminAge }) => one(oldestXminAge),
  },
  {
    name: 'runledger_alerts_firing',
    help: 'Alerts that fire now.',
    label: 'severity',
    read: ({ firingAlertsBySeverity }) => perState(ALERT_SEVERITIES, firingAlertsBySeverity),
  },
  {
    name: 'runledger_alert_notices_waiting',
    help: 'What alert sinks are still to be told: it grows while one does not answer.',
    read: ({ waitingNotices }) => one(waitingNotices),
  },
  {
    name: 'runledger_notification_queue_ratio',
    help: 'How full the database’s queue of notifications is, 0 to 1.',
    read: ({ notificationQueueUsage }) => one(notificationQueueUsage),
  },
  {
    name: 'runledger_ledger_lines',
    help: 'Lines in the ledger, as the database estimates them.',
    read: ({ ledgerLines }) => one(ledgerLines),
  },
];

export class DatabaseGauges {
  readonly registry = new Registry();
  private readonly gauges = ENTRIES.map((entry) => {
    const { name, help, label } = entry;
    const labelNames = label === undefined ? [] : [label];
    return { entry, gauge: new Gauge({ name, help, labelNames, registers: [this.registry] }) };
  });

  show(facts: Facts): void {
    for (const { entry, gauge } of this.gauges) {
      for (const { label, value } of entry.read(facts)) {
        if (entry.label === undefined) gauge.set(value);
        else gauge.set({ [entry.label]: label! }, value);
      }
    }
  }
}
