"""Roll-ups, and tables partitioned by time on PostgreSQL.

Windows that are there keep their rows: on PostgreSQL they move into daily partitions, and every
hour that has some is marked, so that the first roll-up takes them in (windows that an earlier
release merged to five minutes too) before retention drops them.
"""

import uuid
from datetime import UTC, timedelta

import django.db.models.deletion
from django.db import migrations, models


#: Table, column, and the days and name of a partition; as `services.partitions` names them.
TABLES = (
    ("telemetry_storedwindow", "end", "day"),
    ("telemetry_rollup5m", "start", "month"),
    ("telemetry_rollup1h", "start", "month"),
    ("telemetry_rollup1d", "start", "year"),
)
UNIQUE = {
    "telemetry_storedwindow": ("window_identity", "deployment_id, scope, \"end\""),
    "telemetry_rollup5m": ("rollup_5m_block", "deployment_id, scope, start"),
    "telemetry_rollup1h": ("rollup_1h_block", "deployment_id, scope, start"),
    "telemetry_rollup1d": ("rollup_1d_block", "deployment_id, scope, start"),
}


def partition(apps, schema_editor):
    """Replace the tables by partitioned ones with the same columns, names and rows."""
    if schema_editor.connection.vendor != "postgresql":
        return
    with schema_editor.connection.cursor() as cursor:
        for table, key, _ in TABLES:
            cursor.execute(f"CREATE TEMP TABLE old_rows ON COMMIT DROP AS SELECT * FROM {table}")
            cursor.execute(
                f'CREATE TABLE {table}_new (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)'
                f' PARTITION BY RANGE ("{key}")'
            )
            cursor.execute(f"DROP TABLE {table}")
            cursor.execute(f"ALTER TABLE {table}_new RENAME TO {table}")
            # Identity columns cannot be partitioned before PostgreSQL 17; a sequence can.
            cursor.execute(f"CREATE SEQUENCE {table}_id_seq OWNED BY {table}.id")
            cursor.execute(
                f"ALTER TABLE {table} ALTER COLUMN id SET DEFAULT nextval('{table}_id_seq')"
            )
            cursor.execute(f'ALTER TABLE {table} ADD PRIMARY KEY (id, "{key}")')
            name, columns = UNIQUE[table]
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} UNIQUE ({columns})")
            if table == "telemetry_storedwindow":
                cursor.execute(f'CREATE INDEX window_end ON {table} ("end")')
                _carry(cursor, table)
            else:
                # The payload is compressed already.
                cursor.execute(f"ALTER TABLE {table} ALTER COLUMN payload SET STORAGE EXTERNAL")
            cursor.execute("DROP TABLE old_rows")


def _carry(cursor, table):
    cursor.execute(
        """SELECT DISTINCT date_trunc('day', "end" AT TIME ZONE 'UTC') FROM old_rows ORDER BY 1"""
    )
    for (day,) in cursor.fetchall():
        start = day.replace(tzinfo=UTC)
        name = f"{table}_{start:%Y%m%d}"
        cursor.execute(
            f"CREATE TABLE {name} PARTITION OF {table} FOR VALUES FROM (%s) TO (%s)",
            [start, start + timedelta(days=1)],
        )
    cursor.execute("SELECT * FROM old_rows LIMIT 0")
    columns = ", ".join(f'"{column.name}"' for column in cursor.description)
    cursor.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM old_rows")
    cursor.execute(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))")


def mark(apps, schema_editor):
    """Mark every hour that has windows, and start the table of latest figures."""
    windows = apps.get_model("telemetry", "StoredWindow").objects.order_by()
    marks, newest = {}, {}
    for deployment_id, end in windows.values_list("deployment_id", "end").distinct().iterator():
        hour = (end - timedelta(microseconds=1)).replace(minute=0, second=0, microsecond=0)
        marks[(deployment_id, hour)] = min(end, marks.get((deployment_id, hour), end))
        newest[deployment_id] = max(end, newest.get(deployment_id, end))
    mark_model = apps.get_model("telemetry", "RollUpMark")
    mark_model.objects.bulk_create(
        [
            mark_model(deployment_id=deployment_id, level="5m", start=hour, due_at=due)
            for (deployment_id, hour), due in marks.items()
        ],
        batch_size=500,
    )
    latest = apps.get_model("telemetry", "LatestFigures")
    latest.objects.bulk_create(
        [latest(deployment_id=pk, newest_end=end) for pk, end in newest.items()], batch_size=500
    )



class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0001_initial'),
        ('telemetry', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='LatestFigures',
            fields=[
                ('deployment', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='fleet.deployment')),
                ('newest_end', models.DateTimeField()),
                ('kept_at', models.DateTimeField(null=True)),
                ('figures', models.JSONField(default=dict)),
            ],
        ),
        migrations.AddField(
            model_name='storedwindow',
            name='has_histograms',
            field=models.BooleanField(default=True),
        ),
        migrations.AddField(
            model_name='storedwindow',
            name='tile',
            field=models.PositiveSmallIntegerField(default=0),
        ),
        migrations.AlterField(
            model_name='storedwindow',
            name='deployment',
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='windows', to='fleet.deployment'),
        ),
        migrations.CreateModel(
            name='RollUp1d',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(max_length=32)),
                ('start', models.DateTimeField()),
                ('end', models.DateTimeField()),
                ('windows', models.PositiveIntegerField()),
                ('is_sealed', models.BooleanField(default=False)),
                ('payload', models.BinaryField()),
                ('deployment', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='fleet.deployment')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('deployment', 'scope', 'start'), name='rollup_1d_block')],
            },
        ),
        migrations.CreateModel(
            name='RollUp1h',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(max_length=32)),
                ('start', models.DateTimeField()),
                ('end', models.DateTimeField()),
                ('windows', models.PositiveIntegerField()),
                ('is_sealed', models.BooleanField(default=False)),
                ('payload', models.BinaryField()),
                ('deployment', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='fleet.deployment')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('deployment', 'scope', 'start'), name='rollup_1h_block')],
            },
        ),
        migrations.CreateModel(
            name='RollUp5m',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(max_length=32)),
                ('start', models.DateTimeField()),
                ('end', models.DateTimeField()),
                ('windows', models.PositiveIntegerField()),
                ('is_sealed', models.BooleanField(default=False)),
                ('payload', models.BinaryField()),
                ('deployment', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='fleet.deployment')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('deployment', 'scope', 'start'), name='rollup_5m_block')],
            },
        ),
        migrations.CreateModel(
            name='RollUpMark',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('level', models.CharField(max_length=4)),
                ('start', models.DateTimeField()),
                ('due_at', models.DateTimeField(db_index=True)),
                ('token', models.UUIDField(default=uuid.uuid4)),
                ('deployment', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='fleet.deployment')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('deployment', 'level', 'start'), name='rollup_mark')],
            },
        ),
        migrations.RunPython(partition, migrations.RunPython.noop),
        migrations.RunPython(mark, migrations.RunPython.noop),
    ]
